# frozen_string_literal: true

module LockElection
  # A lock, a permit or several locks that are held.
  class Hold
    # :nodoc:
    def self.of(engine, claim) = (claim.election? ? Term : self).new(engine, claim)

    # Creates a hold that is released by the garbage collector if the program drops it unreleased.
    def self.kept(engine, claim)
      of(engine, claim).tap { |hold| ObjectSpace.define_finalizer(hold, forgetting(engine, claim)) }
    end

    def self.forgetting(engine, claim) = proc { engine.drop(claim) unless engine.forked? }
    private_class_method :forgetting

    def initialize(engine, claim)
      @engine = engine
      @claim = claim
    end

    # The names of the locks, or the name of the election.
    def names = @claim.names

    # The token, which proves ownership. For an exclusive lock or a term it is also the fencing token, which only grows.
    def token = @claim.token

    # Seconds for which valid? stays true without another renewal; 0.0 if the lock is no longer held.
    def time_left = @engine.time_left(@claim)

    # Whether the lock is held. If so, no other client can get it before the local deadline. Does no I/O.
    def valid? = time_left.positive?

    # Whether the lock is no longer held: it was lost or released, or this is a forked child.
    def lost? = !valid?

    # Returns self, or raises LockLost if the lock is no longer held. Does no I/O.
    def check!
      return self if valid?

      error = @claim.error
      raise LockLost.new("#{@claim} is not held any more#{": #{error.message}" if error}", "LE001")
    end

    # Releases the hold, which is invalid from this call on. Waits for the server for at most a quarter of the TTL.
    #
    # hold_for:: number of seconds, counted from the acquire, for which the name stays closed
    #
    # Returns true if the hold was held until now, and false if it had been lost before. Returns nil if the server has
    # not replied; the session then keeps retrying. Returns nil in a forked child, which has nothing to release. Raises
    # InvalidRequest or LimitExceeded if this hold_for is not allowed; the hold is then released without it.
    def release(hold_for: 0)
      begin
        seconds = Arguments.seconds("hold_for", hold_for, 0..(@claim.election? ? 0 : Arguments::TTL.end))
      rescue InvalidRequest
        @engine.leave(@claim)
        raise
      end
      released = @engine.leave(@claim, seconds)
      raise @claim.error.dup if [InvalidRequest, LimitExceeded].include?(@claim.error.class)

      released
    end

    # Fences the hold: until this connection's transaction ends, the lock is granted to no other client. Call it before
    # the writes.
    #
    # connection:: a PG::Connection of the application to the same database, with an open transaction; or a connection
    #              of ActiveRecord
    #
    # Raises LockLost if the hold is lost: roll back then. Raises InvalidRequest if no transaction is open, NotInstalled
    # if the connection's database has no lock_election, and PG::Error otherwise.
    def fence(connection)
      sql = fence_sql
      connection = connection.raw_connection if connection.respond_to?(:raw_connection)
      unless connection.is_a?(PG::Connection)
        raise InvalidRequest, "connection is of class #{connection.class}: it must be a PG::Connection"
      end
      if connection.transaction_status == PG::PQTRANS_IDLE
        raise InvalidRequest, "a fence needs an open transaction: outside of one it ends at once"
      end

      connection.exec(sql)
      nil
    rescue PG::Error => e
      state = e.result&.error_field(PG::PG_DIAG_SQLSTATE)
      raise unless %w[LE001 42883 3F000].include?(state)

      @engine.look(@claim.lease) # notices the loss, or reads the new name of a renamed schema
      raise LockElection.error_of(state, e.result.error_field(PG::PG_DIAG_MESSAGE_PRIMARY))
    end

    # Returns the statement of fence() as a text without parameters, for any ORM. Run it in an open transaction, before
    # its writes, and never through a query cache. If it fails, with SQLSTATE LE001 if the hold is lost, roll back.
    # Outside of a transaction it succeeds, but protects nothing. Raises LockLost if the hold is no longer held.
    def fence_sql
      @engine.check_process
      check!
      function = "#{@engine.schema}.#{@claim.election? ? "fence_leader" : "fence_lock"}"
      list = names.map { |name| literal(name) }.join(", ")
      "SELECT pg_catalog.count(#{function}(n, #{token})) AS fenced FROM pg_catalog.unnest(ARRAY[#{list}]) AS n"
    end

    def inspect
      format("#<%s %s token %d, %.1f s left>", self.class, names.map(&:inspect).join(", "), token, time_left)
    end

    private

    # Returns a text as an SQL expression, without any character that an ORM could interpret as a parameter.
    def literal(text)
      return "'#{text}'" if text.match?(%r{\A[A-Za-z0-9_ .,/-]*\z})

      "pg_catalog.convert_from(pg_catalog.decode('#{text.unpack1("H*")}', 'hex'), 'UTF8')"
    end
  end

  # A term as the leader of an election; +token+ is the number of the term.
  class Term < Hold
    # Changes the leader's public text without a new election. Raises LockLost if this term no longer leads, and
    # OutcomeUnknown if the server does not reply in time.
    def proclaim(value)
      value = Arguments.text("value", value)
      @engine.check_process
      check!
      op = @engine.sync { @engine.operate(@claim.lease, "proclaim", names[0], token.to_s, nil, value) }
      return if @engine.result_of(op) == "proclaimed"

      raise LockLost.new("the term of #{names[0].inspect} is over", "LE001")
    end

    # Ends the term. Returns the same as release().
    def resign = release
  end
end
