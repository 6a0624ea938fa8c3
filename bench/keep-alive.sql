-- Keeps any one of :leases leases alive; their numbers are those from :first on.
\set lease :first + random(0, :leases - 1)
SELECT keep_alive(:lease);
