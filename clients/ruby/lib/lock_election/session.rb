# frozen_string_literal: true

module LockElection
  # One connection and one lease, for all threads of a process. Created by LockElection.connect.
  class Session
    # :nodoc:
    def initialize(conninfo, ttl, name, on_event = nil)
      name = name.nil? ? "#{Socket.gethostname}:#{Process.pid}" : Arguments.text("name", name)
      Arguments.callable("on_event", on_event)
      @engine = Engine.new(conninfo, Arguments.seconds("ttl", ttl, Arguments::TTL), name, on_event)
      open = false
      opened(NEVER)
      open = true
    ensure
      close(limit: 0) unless open || @engine.nil?
    end

    # Acquires one lock, or several together (all or none), in order of arrival. With a block, releases the lock after
    # it and returns the block's value; without one, returns the Hold.
    #
    # wait::    seconds; nil = forever, 0 = try once. It limits the time in the queue. The server's first reply may
    #           take up to a quarter of the TTL in any case, so that even a short wait acquires a free lock
    # shared::  whether other shared holders are admitted at the same time
    # ttl::     seconds; nil = the session's TTL. With a different TTL, the lock gets its own lease
    # on_lost:: callable that is called once with the hold, in a separate thread, if the hold is lost
    #
    # Raises NotAcquired if others hold it or the wait timed out, LockLost if the session has ended, Canceled after
    # close(), Unavailable if wait is 0 and the server has not replied in time, and DeadlockDetected, LimitExceeded,
    # AccessDenied, InvalidRequest or NotInstalled if the server rejects the request. Timeout and Thread#raise end the
    # wait, too; the session then releases a place or a grant.
    def lock(*names, wait: nil, shared: false, ttl: nil, on_lost: nil, &block)
      acquire(shared ? "shared" : "lock", Arguments.names(names), nil, wait, ttl, on_lost, &block)
    end

    # Like lock() with wait: 0, but returns nil, without calling the block, if others hold it or are queued for it.
    def try_lock(*names, shared: false, ttl: nil, on_lost: nil, &block)
      acquire(shared ? "shared" : "lock", Arguments.names(names), nil, 0, ttl, on_lost, taken: nil, &block)
    end

    # Acquires one of +permits+ permits of a name. All users of a name must pass the same number. Otherwise like lock().
    def permit(name, permits, wait: nil, ttl: nil, on_lost: nil, &block)
      acquire("permit", [Arguments.name(name)], Arguments.permits(permits).to_s, wait, ttl, on_lost, &block)
    end

    # Tries to acquire each lock independently, without waiting. Returns a Hold or nil for each name, in order. Raises
    # the errors of lock(), and in that case holds none of the locks.
    def try_each(names, shared: false, on_lost: nil)
      Arguments.callable("on_lost", on_lost)
      kind = shared ? "shared" : "lock"
      claims = Array(names).map { |name| Claim.new(kind, [Arguments.name(name)], true, nil, on_lost) }
      return [] if claims.empty?

      kept = false
      @engine.settle(claims, 0, nil)
      failure = claims.find { |claim| claim.state != :held && !claim.error.is_a?(NotAcquired) }
      raise failure.error.dup if failure

      kept = true
      claims.map { |claim| claim.state == :held ? Hold.kept(@engine, claim) : nil }
    ensure
      give_up(claims) unless kept || claims.nil?
    end

    # Runs the block in only one of several replicas at a time, and returns its value. Returns +otherwise+, without
    # calling the block, if the name is held or closed. The name stays closed until +hold_for+ seconds after the start,
    # even if the block fails or the process dies, because the TTL is at least as long. A session that has ended is
    # reopened. Raises the errors of lock(), and, before the block is called, InvalidRequest or LimitExceeded if the
    # server rejects this hold_for.
    def once(name, hold_for:, ttl: nil, on_lost: nil, otherwise: nil, &block)
      seconds = Arguments.seconds("hold_for", hold_for, 0..Arguments::TTL.end)
      ttl = [seconds, Arguments.optional_seconds("ttl", ttl, Arguments::TTL) || @engine.ttl].max
      name = Arguments.name(name)
      raise ArgumentError, "once needs a block" unless block

      reopen
      # The release of token 0 releases nothing, and lets the server check hold_for.
      item = ["release", name, "0", nil, LockElection.ms(seconds)]
      @engine.result_of(@engine.sync { @engine.operate(@engine.main, *item) })
      acquire("lock", [name], nil, 0, ttl, on_lost, hold_for: seconds, taken: otherwise, &block)
    end

    # Campaigns once, and waits to be elected, like lock(). candidate is its public text while it leads, of 1 to 4096
    # bytes; nil = the session's name. With a block, yields the Term, and resigns after the block; without one, returns
    # the Term.
    def campaign(election, candidate = nil, wait: nil, ttl: nil, on_lost: nil, &block)
      text = candidate.nil? ? @engine.own_name : Arguments.text("candidate", candidate)
      acquire("candidate", [Arguments.name(election, "election")], text, wait, ttl, on_lost, &block)
    end

    # Campaigns, yields the Term when elected, and resigns after the block. Returns the block's value, or nil after
    # close(). If the term was lost during the block, campaigns again, with a new lease if the session has ended. Raises
    # the errors of the block (except LockLost after the term was lost), and permanent errors of the server.
    def lead(election, candidate = nil, ttl: nil, on_lost: nil)
      raise ArgumentError, "lead needs a block" unless block_given?

      failures = 0
      until @engine.close_until
        led = false
        begin
          reopen
          campaign(election, candidate, ttl: ttl, on_lost: on_lost) do |term|
            led = true
            value = yield term
            return value if term.valid? || @engine.forked?
          rescue LockLost
            raise if term.valid?
          end
        rescue Canceled
          raise if led

          return nil
        rescue Error => e
          raise if led || !(e.is_a?(LockLost) || e.passes?)
        end
        failures = led ? 0 : failures + 1
        pause = LockElection.jitter([0.05 * 2**failures, 5.0].min)
        @engine.await(@engine.main, @engine.now + pause) { @engine.close_until }
      end
    end

    # Returns the current Leader, or nil if there is none. Raises Unavailable if the server does not reply.
    def leader(election)
      sql = "SELECT candidate, term FROM {s}.current_leader($1)"
      name = Arguments.name(election, "election")
      @engine.check_process
      candidate, term = @engine.result_of(@engine.sync { @engine.read(sql, name) }).first
      term && Leader.new(candidate, term.to_i)
    end

    # Returns a Watch of an election's leaders, or, with a block, yields each: the current Leader first, then every
    # change, once and in order; nil = there is no leader. Ends with break, or when the session is closed.
    def observe(election, &block)
      @engine.check_process
      watch = Watch.new(@engine, Observer.new(Arguments.name(election, "election")))
      return watch unless block

      begin
        watch.each(&block)
      ensure
        watch.close
      end
    end

    # :connected; :suspended while there is no connection, though all holds are still held; or :ended.
    def state = @engine.state

    # The number of the session's lease on the server.
    def lease = @engine.main.id.to_i

    # Gets a new lease if the session has ended. Its old holds remain lost. Raises the errors of connect.
    def reopen
      @engine.check_process
      @engine.sync { @engine.reopen }
      opened(@engine.patience)
      self
    end

    # Ends all waits, releases all holds, and closes the connection. Waits for the server for at most +limit+ seconds;
    # nil = a quarter of the TTL. Without a reply, the lease expires after its TTL. Does nothing in a forked child.
    def close(limit: nil)
      seconds = Arguments.optional_seconds("limit", limit)
      return if @engine.forked?

      @engine.sync { @engine.close(seconds) }
      @engine.await(@engine, @engine.close_until + 1) { @engine.finished }
      @engine.threads.each { |thread| thread.join(1) unless thread == Thread.current }
      nil
    end

    def inspect = "#<#{self.class} #{state}, lease #{lease}>"

    private

    def opened(limit)
      answered = @engine.await(@engine.main, @engine.now + limit) do
        @engine.check_closed
        @engine.main.state != :new || @engine.end_error
      end
      raise @engine.end_error.dup if @engine.end_error
      raise Unavailable, "the server has not answered in time#{@engine.why}" unless answered
    end

    # taken: the value to return if others hold it; by default, NotAcquired is raised.
    def acquire(kind, names, last, wait, ttl, on_lost, hold_for: 0.0, taken: NotAcquired)
      wait = Arguments.optional_seconds("wait", wait)
      ttl = Arguments.optional_seconds("ttl", ttl, Arguments::TTL)
      claim = Claim.new(kind, names, wait&.zero?, last, Arguments.callable("on_lost", on_lost))
      kept = entered = false
      @engine.settle([claim], wait, ttl)
      if claim.state != :held
        return taken if taken != NotAcquired && claim.error.is_a?(NotAcquired)

        raise (claim.error || Canceled.new("it was released")).dup
      end

      hold = Hold.kept(@engine, claim)
      kept = !block_given?
      return hold if kept

      entered = true
      yield hold
    ensure
      # Ignore a failed release, because the work of the block was done.
      if entered then @engine.leave(claim, hold_for)
      elsif claim && !kept then give_up([claim])
      end
    end

    def give_up(claims)
      return if @engine.forked?

      @engine.sync { claims.each { |claim| @engine.over(claim, Canceled.new("the wait was interrupted")) } }
    end
  end

  # The leaders of an election, from Session#observe.
  class Watch
    include Enumerable

    # :nodoc:
    def initialize(engine, observer)
      @engine = engine
      @observer = observer
      engine.sync { engine.observe(observer) }
    end

    # Yields the current Leader, then each change; nil = there is no leader. Returns after close().
    def each
      return enum_for unless block_given?

      while (told = @observer.queue.pop)
        yield told[0]
      end
      self
    end

    # Ends the iteration, including in other threads that wait in it.
    def close
      @engine.sync { @engine.unobserve(@observer) } unless @engine.forked?
    end
  end
end
