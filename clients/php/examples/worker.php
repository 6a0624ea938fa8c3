<?php

/**
 * Several workers, of which one works: worker.php [TTL]. Each step is written behind the fence of the lock.
 */

require (getenv('SYMFONY_LOCK') ?: __DIR__.'/../vendor').'/autoload.php';
require_once __DIR__.'/../src/LockElectionStore.php';

use LockElection\Symfony\LockElectionStore;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

$ttl = (float) ($argv[1] ?? 30);
$connect = fn () => new \PDO('pgsql:', options: [\PDO::ATTR_ERRMODE => \PDO::ERRMODE_EXCEPTION]); // PGHOST and the like
[$application, $store] = [$connect(), new LockElectionStore($connect(), $ttl)];
while (true) {
    $key = new Key('worker');
    $lock = (new LockFactory($store))->createLockFromKey($key, $ttl);
    try {
        $lock->acquire(true);
        echo 'works ', getmypid(), "\n";
        while (true) {
            $lock->refresh(); // more often than each third of the TTL
            usleep(50_000); // a step of the work, with no transaction open
            $application->beginTransaction();
            $store->fence($key, $application);
            $application->exec('INSERT INTO step (pid) VALUES ('.getmypid().')');
            $application->commit();
        }
    } catch (LockConflictedException | LockAcquiringException $e) { // another worker may have it: queue up again
        if ($e instanceof LockAcquiringException && !$e->getPrevious() instanceof LockExpiredException) {
            throw $e; // not a process that was stopped while it renewed
        }
        echo "lost\n";
        if ($application->inTransaction()) {
            $application->rollBack();
        }
    }
}
