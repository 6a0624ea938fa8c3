-- Grants :per_client leases in one transaction.
SELECT count(grant_lease('5 min')) FROM generate_series(1, (:per_client)::bigint);
