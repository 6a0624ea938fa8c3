<?php

/**
 * worker.php [TTL in seconds]: start it several times; only one process works at a time. The fence of the lock protects
 * the write of each step.
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
$connect = fn () => new \PDO('pgsql:', options: [\PDO::ATTR_ERRMODE => \PDO::ERRMODE_EXCEPTION]); // uses PGHOST, ...
[$application, $store] = [$connect(), new LockElectionStore($connect(), $ttl)];
while (true) {
    $key = new Key('worker');
    $lock = (new LockFactory($store))->createLockFromKey($key, $ttl);
    try {
        $lock->acquire(true);
        echo 'works ', getmypid(), "\n";
        while (true) {
            $lock->refresh(); // at least three times per TTL
            usleep(50_000); // a step of the work, without an open transaction
            $application->beginTransaction();
            $store->fence($key, $application);
            $application->exec('INSERT INTO step (pid) VALUES ('.getmypid().')');
            $application->commit();
        }
    } catch (LockConflictedException | LockAcquiringException $e) { // the lock was lost: wait for it again
        if ($e instanceof LockAcquiringException && !$e->getPrevious() instanceof LockExpiredException) {
            throw $e; // the only expected cause is a renewal that took longer than the TTL
        }
        echo "lost\n";
        if ($application->inTransaction()) {
            $application->rollBack();
        }
    }
}
