# frozen_string_literal: true

module LockElection
  # The part of the engine that the application's threads run.
  class Engine # :nodoc:
    # Runs the block under the mutex. An interrupt, such as of Timeout, is delayed until the block has ended.
    def sync(&block) = Thread.handle_interrupt(Object => :never) { @mutex.synchronize(&block) }

    # Waits until the block, which runs under the mutex, returns true, but at most until +till+. Returns whether it did.
    def await(request, till)
      loop do
        waiter = sync do
          next true if yield
          next false if now >= till
          raise Error, "the session's thread was killed" unless @thread.alive?

          request.waiter
        end
        return waiter unless waiter.is_a?(Waiter)

        waiter.wait(till == NEVER ? 10 * LONGEST_SLEEP : (till - now).clamp(0, LONGEST_SLEEP))
      end
    end

    def now = Clock.now

    def state
      return :ended if forked? || @end_error || @close_until || !@main.live? || now >= @main.deadline

      @connected && @failures.zero? ? :connected : :suspended
    end

    # The limit of a statement, in seconds: the shortest of all leases. The caller has the mutex; patience() locks it.
    def call = @leases.each_value.map(&:call).min

    def patience = sync { call }

    # Seconds until a hold's deadline; 0.0 in a forked child, which holds nothing. No I/O, and no mutex.
    def time_left(claim) = claim.state == :held && !forked? ? [claim.lease.deadline - now, 0.0].max : 0.0

    # Whether this is a forked child, which has no session and must not touch that of its parent.
    def forked? = Process.pid != @pid

    def check_process
      raise InvalidRequest, "this session belongs to the parent process: open one after the fork" if forked?
    end

    def check_closed
      raise Canceled, "the session is closed" if @close_until
    end

    def check_open
      tick
      check_closed
      raise LockLost.new("the session has ended: #{@end_error.message}", @end_error.sqlstate) if @end_error
    end

    def ask(claim, ttl)
      check_open
      claim.lease = (@leases[ttl || @ttl] ||= Lease.new(ttl || @ttl))
      claim.owner = "#{@marker}-#{@numbers += 1}"
      claim.since = now
      claim.lease.claims[claim.owner] = claim
      claim.lease.asks[claim] = true
      alarm
    end

    # Ends a wait or a hold, and releases its grant or place on the server. If a reply is outstanding, releases it after
    # that reply.
    def over(claim, error)
      if claim.evicted && claim.phase == :granted
        claim.evicted = false
        give_back(claim)
      end
      return unless claim.lease && claim.open?

      claim.state == :held ? report(:released, claim) : report(:not_acquired, claim, error)
      claim.state = :over
      claim.error = error
      claim.lease.queued.delete(claim)
      if claim.phase == :new then done(claim)
      elsif %i[queued granted].include?(claim.phase) then give_back(claim)
      end
      claim.wake
      alarm
    end

    def release(claim, hold_for = 0.0)
      tick
      claim.hold_for = hold_for if claim.state == :held
      over(claim, Canceled.new("it was released"))
    end

    # Schedules the release of a hold, for the next tick. Called by finalizers, which must not lock the mutex.
    def drop(claim)
      @dropped << claim unless @finished
    end

    def reopen
      tick
      check_closed
      return unless @end_error
      raise Error, @end_error.message if @finished

      @end_error = nil
      @main = Lease.new(@ttl)
      @leases = { @ttl => @main }
      alarm
    end

    def close(limit)
      @close_until ||= now + (limit || call)
      all_claims.each { |claim| over(claim, Canceled.new("the session was closed")) }
      @main.wake
      alarm
    end

    def observe(observer)
      check_closed
      @observers << observer
      alarm
    end

    def unobserve(observer)
      @observers.delete(observer)
      observer.queue.close
    end

    def operate(lease, *item)
      check_closed
      alarm
      Op.new(item).tap { |op| lease.ops[op] = true }
    end

    def read(sql, *params)
      check_closed
      alarm
      Call.new(sql, params).tap { |call| @calls << call }
    end

    # Requests the claims, and waits until all are granted or have ended. +wait+ limits the time in the queue, not the
    # time for the first reply.
    def settle(claims, wait, ttl)
      check_process
      sync { claims.each { |claim| ask(claim, ttl) } }
      start = now
      first_answer = start + patience
      attempt = claims[0].attempt
      till = attempt ? first_answer : start + (wait || NEVER)
      claims.each do |claim|
        next if await(claim, till) { claim.state != :waiting } || attempt || claim.phase == :queued

        sync { claim.overdue = true }
        await(claim, first_answer) { claim.state != :waiting }
      end
      error = attempt ? Unavailable.new("the server has not answered in time#{why}") : nil
      sync do
        claims.each do |one|
          over(one, error || NotAcquired.new("#{one} was not granted in time#{why}")) if one.state == :waiting
        end
      end
    end

    # Waits for the result of a Call or an Op and returns it, or raises it if it is an error.
    def result_of(request)
      await(request, now + patience) { request.answer }
      if request.answer.nil?
        kind = request.is_a?(Op) && request.sent ? OutcomeUnknown : Unavailable
        raise kind, "the server has not answered in time#{why}"
      end
      raise request.answer.dup if request.answer.is_a?(Error)

      request.answer
    ensure
      sync do
        @leases.each_value { |lease| lease.ops.delete(request) }
        request.answer ||= Canceled.new("nobody waits for it")
      end
    end

    # Releases a claim, and waits for the server for at most the limit of a statement. Returns true if it was held until
    # now, false if it had been lost before, and nil if that is not known.
    def leave(claim, hold_for = 0.0)
      return if forked?

      sync { release(claim, hold_for) }
      await(claim, now + patience) { claim.phase == :done }
      claim.state == :lost ? false : claim.released
    end

    # Makes the session read the news of a lease soon, after a fence has failed.
    def look(lease)
      lease.poll_at = 0.0
      alarm
    end

    def why = @trouble && !@connected ? ": #{@trouble.message}" : ""

    # Wakes up the session's thread.
    def alarm
      return if @alarmed

      @alarmed = true
      @ringer.write_nonblock("!", exception: false)
    rescue IOError, SystemCallError
      nil # the session has ended
    end

    # Called in a forked child, immediately after the fork.
    def abandon = @wire.abandon
  end
end
