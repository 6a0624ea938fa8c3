<?php

namespace LockElection\Symfony;

use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Key;

/**
 * A store for Symfony's Lock component, in a PostgreSQL with lock_election. Locks are granted in order of arrival;
 * waiting does not poll. A key can be serialized, and used by another process.
 */
final class LockElectionStore implements BlockingStoreInterface
{
    /**
     * @param \PDO  $connection a connection that the application does not use: its rollback would undo an acquire
     * @param float $initialTtl TTL of a new lock in seconds; a Lock with a TTL then renews immediately, with that TTL
     */
    public function __construct(private \PDO $connection, private float $initialTtl = 30.0)
    {
        if ('pgsql' !== $connection->getAttribute(\PDO::ATTR_DRIVER_NAME)) {
            throw new \InvalidArgumentException('The connection is not one to PostgreSQL.');
        }
        $connection->setAttribute(\PDO::ATTR_ERRMODE, \PDO::ERRMODE_EXCEPTION);
    }

    public function save(Key $key): void
    {
        $this->acquire($key, '0');
    }

    public function waitAndSave(Key $key): void
    {
        $this->acquire($key, null);
    }

    /**
     * Renews the lock: it expires $ttl seconds after this call.
     *
     * @throws LockConflictedException if the lock was lost
     * @throws LockExpiredException    if the renewal took longer than the TTL
     */
    public function putOffExpiration(Key $key, float $ttl): void
    {
        $sent = microtime(true);
        $valid = $this->query('SELECT extract(epoch FROM renew_lock(?, ?, make_interval(secs => ?)))',
            [self::name($key), self::token($key), $ttl]);
        if (null === $valid) {
            throw new LockConflictedException();
        }
        $this->expires($key, $sent + min($ttl, (float) $valid));
    }

    public function delete(Key $key): void
    {
        if ($key->hasState(__CLASS__)) {
            $this->query('SELECT release_lock(?, ?, all_holds => true)', [self::name($key), self::token($key)]);
            $key->removeState(__CLASS__);
        }
    }

    public function exists(Key $key): bool
    {
        return $key->hasState(__CLASS__) && $this->query('SELECT is_held(?, ?)', [self::name($key), self::token($key)]);
    }

    /**
     * Fences the lock: until the open transaction of $application ends, the lock is granted to no other client. So the
     * transaction's later writes are committed only if the lock was still held.
     *
     * @param \PDO $application a connection of the application to the same database
     *
     * @throws LockConflictedException if the lock was lost; roll back then
     * @throws \LogicException         if no transaction is open
     */
    public function fence(Key $key, \PDO $application): void
    {
        if (!$application->inTransaction()) {
            throw new \LogicException('A fence needs an open transaction: outside of one it ends at once.');
        }
        try {
            $application->prepare('SELECT fence_lock(?, ?)')->execute([self::name($key), self::token($key)]);
        } catch (\PDOException $e) {
            throw 'LE001' === $e->getCode() ? new LockConflictedException($e->getMessage(), 0, $e) : $e;
        }
    }

    private function acquire(Key $key, ?string $wait): void
    {
        $sent = microtime(true);
        [$owner, $token] = $key->hasState(__CLASS__) ? $key->getState(__CLASS__) : [bin2hex(random_bytes(16)), null];
        $token = $this->query('SELECT acquire_lock(?, make_interval(secs => ?), ?, owner => ?)',
            [self::name($key), $this->initialTtl, $wait, $owner]);
        if (null === $token) {
            throw new LockConflictedException();
        }
        $key->setState(__CLASS__, [$owner, $token]);
        if (null === $wait) {
            $this->putOffExpiration($key, $this->initialTtl); // it is not known when the TTL began after a wait
        } else {
            $this->expires($key, $sent + $this->initialTtl);
        }
    }

    private function expires(Key $key, float $at): void
    {
        $key->reduceLifetime($at - microtime(true));
        if ($key->isExpired()) {
            $this->delete($key);
            throw new LockExpiredException(sprintf('The lock "%s" has expired before it could be used.', $key));
        }
    }

    /** Runs a statement in its own transaction, and returns the first column of its row. */
    private function query(string $sql, array $arguments): mixed
    {
        if ($this->connection->inTransaction()) {
            throw new \LogicException('The connection of the store has an open transaction.');
        }
        $statement = $this->connection->prepare($sql);
        $statement->execute($arguments);

        return $statement->fetchColumn();
    }

    private static function name(Key $key): string
    {
        // libpq would cut the name at a NUL, and the server rejects names of more than 255 bytes
        $fits = preg_match('/^[^\0]{0,255}$/D', $key) && preg_match('//u', $key);

        return $fits ? (string) $key : 'sha256 '.hash('sha256', $key);
    }

    private static function token(Key $key): int
    {
        return $key->hasState(__CLASS__) ? $key->getState(__CLASS__)[1] : throw new LockConflictedException();
    }
}
