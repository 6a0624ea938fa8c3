<?php

/**
 * The store: what Symfony's component asks of one, the program of the README, and processes of examples/worker.php, of
 * which one is killed, and one stopped. A server is in PGHOST, PGPORT, PGUSER and PGDATABASE; SYMFONY_LOCK is the
 * folder of the component's autoload.php.
 */

require getenv('SYMFONY_LOCK').'/autoload.php';
require __DIR__.'/../src/LockElectionStore.php';

use LockElection\Symfony\LockElectionStore;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

set_error_handler(fn (int $level, string $message) => throw new \ErrorException($message));

function is(mixed $expected, mixed $got, string $what): void
{
    if ($expected !== $got) {
        throw new \Exception("$what: ".var_export($got, true).', and not '.var_export($expected, true));
    }
}

function raises(string $class, callable $call, string $what): \Throwable
{
    try {
        $call();
    } catch (\Throwable $e) {
        is($class, $e::class, "$what: {$e->getMessage()}");

        return $e;
    }
    throw new \Exception("$what: nothing is raised");
}

function until(callable $condition, string $what): mixed
{
    for ($end = microtime(true) + 60; !$value = $condition(); usleep(10_000)) {
        if (microtime(true) > $end) {
            throw new \Exception("waited in vain: $what");
        }
    }

    return $value;
}

function connection(): \PDO
{
    return new \PDO('pgsql:', options: [\PDO::ATTR_ERRMODE => \PDO::ERRMODE_EXCEPTION]);
}

function resource(): string
{
    return 'symfony '.bin2hex(random_bytes(8));
}

function sql(string $sql): mixed
{
    static $connection;
    $connection ??= connection();

    return $connection->query($sql)->fetchColumn();
}

$tests = [
    'a key is saved, and deleted' => function (LockElectionStore $store) {
        $key = new Key(resource());
        is(false, $store->exists($key), 'before');
        $store->save($key);
        is(true, $store->exists($key), 'saved');
        $store->delete($key);
        is(false, $store->exists($key), 'deleted');
    },
    'different resources are apart' => function (LockElectionStore $store) {
        [$a, $b] = [new Key(resource()), new Key(resource())];
        $store->save($a);
        is(false, $store->exists($b), 'the other one');
        $store->save($b);
        is([true, true], [$store->exists($a), $store->exists($b)], 'both');
        $store->delete($a);
        is([false, true], [$store->exists($a), $store->exists($b)], 'the second one');
    },
    'two keys of one resource exclude each other' => function (LockElectionStore $store, LockElectionStore $other) {
        foreach ([$store, $other] as $second) {
            $resource = resource();
            [$a, $b] = [new Key($resource), new Key($resource)];
            $store->save($a);
            raises(LockConflictedException::class, fn () => $second->save($b), 'the second key');
            // a failure changes nothing
            is([true, false], [$store->exists($a), $second->exists($b)], 'the first one holds');
            $store->delete($a);
            $second->save($b);
            is([false, true], [$store->exists($a), $second->exists($b)], 'the second one holds');
            $second->delete($b);
        }
    },
    'a key is saved twice, and deleted once' => function (LockElectionStore $store) {
        $key = new Key(resource());
        $store->save($key);
        $store->save($key);
        is(true, $store->exists($key), 'held');
        $store->delete($key);
        is(false, $store->exists($key), 'released');
        $store->save(new Key((string) $key));
    },
    'to delete a key that is not held releases nothing' => function (LockElectionStore $store) {
        $resource = resource();
        [$a, $b] = [new Key($resource), new Key($resource)];
        $store->save($a);
        $store->delete($b);
        is(true, $store->exists($a), 'held');
    },
    'a key expires' => function (LockElectionStore $store) {
        $key = new Key(resource());
        $store->save($key);
        $store->putOffExpiration($key, 0.3);
        is(true, $store->exists($key), 'before');
        $another = new Key((string) $key);
        raises(LockConflictedException::class, fn () => $store->putOffExpiration($another, 1), 'of another key');
        until(fn () => !$store->exists($key), 'it expires');
        until(fn () => $key->isExpired(), 'and knows');
        raises(LockConflictedException::class, fn () => $store->putOffExpiration($key, 1), 'a renewal is too late');
    },
    'a renewal puts off the expiration' => function (LockElectionStore $store) {
        $key = new Key(resource());
        $store->save($key);
        is(true, $key->getRemainingLifetime() > 9 && $key->getRemainingLifetime() <= 10, 'the initial TTL');
        $key->resetLifetime();
        $store->putOffExpiration($key, 60);
        is(true, $key->getRemainingLifetime() > 30 && $key->getRemainingLifetime() <= 60, 'the new one');
    },
    'a key that expires before it is saved is not held' => function (LockElectionStore $store) {
        $resource = resource();
        [$a, $b] = [new Key($resource), new Key($resource)];
        $a->reduceLifetime(0);
        raises(LockExpiredException::class, fn () => $store->save($a), 'expired');
        is(false, $store->exists($a), 'not held');
        $store->save($b);
        is([false, true], [$store->exists($a), $store->exists($b)], 'the next one holds');
    },
    'a serialized key is held by the other process' => function (LockElectionStore $store, LockElectionStore $other) {
        $key = new Key(resource());
        $store->save($key);
        $passed = unserialize(serialize($key));
        is(true, $other->exists($passed), 'held there');
        $other->putOffExpiration($passed, 20);
        $other->save($passed);
        $other->delete($passed);
        is(false, $store->exists($key), 'released there');
    },
    'a resource may have any length' => function (LockElectionStore $store) {
        $key = new Key(str_repeat(resource(), 100));
        $store->save($key);
        raises(LockConflictedException::class, fn () => $store->save(new Key((string) $key)), 'one resource');
        $store->save(new Key("$key!"));
    },
    'a resource may have any bytes' => function (LockElectionStore $store) {
        $resource = resource();
        foreach (['', "\0a", "\0b", "\xff", "'"] as $suffix) {
            $store->save(new Key($resource.$suffix));
            raises(LockConflictedException::class, fn () => $store->save(new Key($resource.$suffix)), $suffix);
        }
    },
    'a Lock of the component' => function (LockElectionStore $store, LockElectionStore $other) {
        $resource = resource();
        $lock = (new LockFactory($store))->createLock($resource, 5);
        $second = (new LockFactory($other))->createLock($resource, 5);
        is(true, $lock->acquire(), 'acquired');
        is(true, $lock->acquire(), 'and again');
        is(false, $second->acquire(), 'by another one');
        is(true, $lock->getRemainingLifetime() > 3, 'its lifetime');
        $lock->release();
        is([false, true, true], [$lock->isAcquired(), $second->acquireRead(), $second->isAcquired()], 'by another one');
        unset($second);
        is(true, $lock->acquire(), 'a lock that is destructed is released');
    },
    'a lock that waits polls nothing, and gets its turn' => function (LockElectionStore $store) {
        $key = new Key(resource());
        $store->save($key);
        $pid = pcntl_fork();
        if (0 === $pid) {
            $left = 0;
            try {
                $own = new LockElectionStore(connection(), 10);
                $own->waitAndSave($waiting = new Key((string) $key));
                $left = $waiting->getRemainingLifetime();
                $own->delete($waiting);
            } finally { // without the destructors of the parent's connections
                posix_kill(getmypid(), $left > 8 && $left <= 10 ? SIGUSR1 : SIGUSR2);
            }
        }
        until(fn () => sql("SELECT count(*) FROM lock_election.waiters WHERE name = '$key'"), 'it waits');
        usleep(3_000_000);
        $store->delete($key);
        pcntl_waitpid($pid, $status);
        is(SIGUSR1, pcntl_wtermsig($status), 'its lifetime begins after the wait');
    },
    'wrong uses' => function (LockElectionStore $store) {
        raises(\InvalidArgumentException::class, fn () => new LockElectionStore(new class extends \PDO {
            public function __construct()
            {
            }

            public function getAttribute(int $attribute): mixed
            {
                return 'mysql';
            }
        }), 'another database');
        $connection = connection();
        $own = new LockElectionStore($connection);
        $connection->beginTransaction();
        raises(\LogicException::class, fn () => $own->save(new Key(resource())), 'an open transaction');
        $lock = (new LockFactory($store))->createLock('', 5);
        raises(LockAcquiringException::class, fn () => $lock->acquire(), 'an empty name');
    },
    'a fence refuses a late write' => function (LockElectionStore $store) {
        $key = new Key(resource());
        $application = connection();
        $store->save($key);
        raises(\LogicException::class, fn () => $store->fence($key, $application), 'no transaction');
        $application->beginTransaction();
        $store->fence($key, $application);
        $application->commit();
        sql("SELECT force_release_lock('$key')");
        $application->beginTransaction();
        raises(LockConflictedException::class, fn () => $store->fence($key, $application), 'lost');
        $application->rollBack();
        $application->beginTransaction();
        raises(LockConflictedException::class, fn () => $store->fence(new Key(resource()), $application), 'never held');
        $application->exec("SET LOCAL search_path = ''");
        raises(\PDOException::class, fn () => $store->fence($key, $application), 'no such function');
    },
    'the program of the README' => function () {
        preg_match_all('/^```php\n(.*?)^```$/ms', file_get_contents(__DIR__.'/../README.md'), $blocks);
        is(1, count($blocks[1]), 'one program');
        $file = tempnam(sys_get_temp_dir(), 'readme');
        $here = "require getenv('SYMFONY_LOCK').'/autoload.php'; require '".__DIR__."/../src/LockElectionStore.php';";
        file_put_contents($file, str_replace("require 'vendor/autoload.php';", $here, $blocks[1][0], $replaced));
        is(1, $replaced, 'the place of the component');
        exec(\PHP_BINARY." $file 2>&1", $output, $status);
        unlink($file);
        is([0, ['makes the report']], [$status, $output], 'what it prints');
    },
    'one of three processes works' => function () {
        sql('CREATE TABLE step (number serial, pid int)');
        $workers = [];
        try {
            for ($i = 0; $i < 3; ++$i) {
                $null = ['file', '/dev/null', 'w'];
                $command = [\PHP_BINARY, __DIR__.'/../examples/worker.php', '1'];
                $process = proc_open($command, [['file', '/dev/null', 'r'], $null, \STDERR], $pipes);
                $workers[proc_get_status($process)['pid']] = $process;
            }
            $steps = fn (array $of) => (int) sql('SELECT count(*) FROM step WHERE pid IN ('.implode(', ', $of).')');
            $works = function (array $of, string $what) use ($steps) {
                $goal = $steps($of) + 5;
                until(fn () => $steps($of) >= $goal, $what);

                return (int) sql('SELECT pid FROM step ORDER BY number DESC LIMIT 1');
            };
            $first = $works(array_keys($workers), 'one works');
            is($steps([$first]), $steps(array_keys($workers)), 'and no other');
            posix_kill($first, SIGKILL);
            $rest = array_values(array_diff(array_keys($workers), [$first]));
            $second = $works($rest, 'the next one works once the TTL of the killed one has expired');
            posix_kill($second, SIGSTOP);
            $third = $works(array_diff($rest, [$second]), 'and the next one when it is stopped');
            $before = $steps([$second]);
            posix_kill($second, SIGCONT);
            $works([$third], 'it goes on');
            is($before, $steps([$second]), 'a late one writes nothing');
            posix_kill($third, SIGKILL);
            is($second, $works([$second], 'it has queued up again'), 'works');
        } finally {
            foreach ($workers as $pid => $process) {
                posix_kill($pid, SIGKILL);
                proc_close($process);
            }
            sql('DROP TABLE step');
        }
    },
];

// A process that is stopped in a fenced transaction blocks the others no longer than that.
sql("ALTER ROLE CURRENT_USER SET idle_in_transaction_session_timeout = '3 s'");
$failed = 0;
foreach ($tests as $name => $test) {
    sql('SELECT force_release_role(current_user::regrole)');
    try {
        $test(new LockElectionStore(connection(), 10), new LockElectionStore(connection(), 10));
        echo "ok - $name\n";
    } catch (\Throwable $e) {
        ++$failed;
        echo "not ok - $name\n$e\n";
    }
}
sql('ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout');
exit($failed ? 1 : 0);
