-- Keeps a random lease alive, one of :leases leases whose numbers begin with :first.
\set lease :first + random(0, :leases - 1)
SELECT keep_alive(:lease);
