# frozen_string_literal: true

module LockElection
  # The part of the engine that makes a turn, one call of lease_sync() with all queued items, and reads its reply.
  class Engine # :nodoc:
    ITEMS = 128 # maximum number of items in a call
    NAMES = 1000 # maximum number of names in a call

    Row = Struct.new(:item, :event, :token, :name, :owner, :kind, :reason, :sqlstate, :message, :hint, :validity,
                     :incarnation, :news, :complete, :channel)

    # The validity in whole milliseconds, because the texts of intervals and of floats depend on settings.
    SYNC = <<~SQL
      SELECT item, event, token, name, owner, kind, reason, sqlstate, message, hint,
        pg_catalog.floor(pg_catalog.date_part('epoch', validity) OPERATOR(pg_catalog.*) 1000)::bigint,
        incarnation, news, complete, channel FROM {s}.lease_sync($1, $2, $3, $4, $5::pg_catalog.text[], $6::interval)
    SQL

    private

    def turn(lease)
      return end_lease(lease, Canceled.new("nothing hangs on it")) if lease != @main && lease.claims.empty?

      sent = now
      lease.hinted = false
      renews = lease.renew_at <= sent || lease.poll_at <= sent || lease.queued.any? || lease.pending.any?
      texts, waits = gather(lease, lease.trouble && renews)
      @leases[lease.ttl] = @leases.delete(lease.ttl) if @leases.size > 1 # the other leases go first next time
      wait = waits || renews || lease.unsure || lease.flight.empty? ? LockElection.ms(lease.call / 2) : nil
      begin
        rows = sync_call(lease, texts, wait)
      rescue Error => e
        return turn_failed(lease, e)
      end
      flight = lease.flight
      lease.flight = {}
      lease.trouble = false
      tick # a reply that arrives after the deadline is too late (rule 3.2)
      take_reply(lease, sent, rows, flight, !wait.nil?) if lease.live?
    end

    # Returns the texts of the items, and whether the call has to wait for durability. Fills lease.flight.
    # bare: whether the call gets no items.
    def gather(lease, bare)
      texts = []
      lease.flight = flight = {}
      return [texts, true] if bare

      add = lambda do |request, action, name, *rest|
        flight[flight.size + 1] = [request, name]
        texts.push(flight.size.to_s, action, name, *rest)
      end
      lease.ghosts.keys.first(ITEMS).each do |ghost|
        kind, name, token = ghost
        add.call(ghost, kind == "election" ? "resign" : "release", name, token, nil, nil)
      end
      gather_releases(lease, add)
      # The reply to a call with requests waits for a flush to disk, which would delay releases in the same call. So
      # send releases in a call of their own: their callers can add their next requests to the following call.
      lease.apart = flight.any? && !lease.apart
      waits = gather_ops(lease, add)
      waits = gather_asks(lease, texts, add) || waits unless lease.unsure || lease.apart
      [texts, waits]
    end

    def gather_releases(lease, add)
      lease.back.each_key do |claim|
        room = claim.alone && lease.flight.any? ? 0 : ITEMS - lease.flight.size
        hold_for = claim.hold_for.positive? ? LockElection.ms(claim.hold_for) : nil
        claim.left.first(room).each do |name|
          add.call(claim, claim.election? ? "resign" : "release", name, claim.token.to_s, nil, hold_for)
        end
        claim.sent += 1 if room.positive?
        break if claim.alone || !room.positive?
      end
    end

    def gather_ops(lease, add)
      lease.ops.each_key do |op|
        next if lease.flight.size >= ITEMS || (op.alone && lease.flight.any?)

        add.call(op, *op.item)
        op.sent = true
      end
      lease.flight.each_value.any? { |request, _| request.is_a?(Op) }
    end

    # Adds requests to the call until it is full. Returns whether the call has to wait for durability. A request for
    # several names becomes consecutive items with the same number.
    def gather_asks(lease, texts, add)
      names = lease.flight.size
      lease.asks.each_key do |claim|
        names += claim.names.size
        full = claim.alone || names > NAMES || lease.flight.size == ITEMS
        return true if lease.flight.any? && full

        action = "#{claim.attempt ? "try" : "enqueue"}_#{claim.kind}"
        permit = claim.kind == "permit"
        add.call(claim, action, claim.names[0], permit ? claim.last : nil, claim.owner, permit ? nil : claim.last)
        claim.names.drop(1).each { |name| texts.push(lease.flight.size.to_s, action, name, nil, claim.owner, nil) }
        claim.phase = :sent
        return true if claim.alone
      end
      lease.asks.any?
    end

    # Handles the rejection of a whole call, whose items may still have been carried out.
    def turn_failed(lease, error)
      requests = lease.flight.each_value.map(&:first).uniq
      unanswered(lease)
      lease.trouble = true
      lease.renew_at = failed
      hold_off if error.passes? || %w[3F000 42883].include?(error.sqlstate)
      alone = requests.size == 1
      requests.each do |request|
        if request.is_a?(Array) then lease.ghosts.delete(request) unless error.passes?
        elsif request.is_a?(Claim) && lease.back.key?(request)
          done(request) if alone && !error.passes? # the hold ends with its lease
          request.alone ||= !alone
        elsif error.passes? ? request.is_a?(Claim) && request.attempt : alone then refused(lease, request, error)
        elsif !error.passes? then request.alone = true # one of them was rejected: send each alone to find out which
        end
      end
    end

    def refused(lease, request, error)
      return over(request, error) if request.is_a?(Claim)

      lease.ops.delete(request)
      request.answered(error)
    end

    # --- the reply ----------------------------------------------------------------------------------------------------

    def take_reply(lease, sent, rows, flight, waited)
      head = rows.shift
      if head.event == "gone"
        return end_lease(lease, LockLost.new("the server has ended the lease: #{head.reason}", "LE001"), gone: true)
      end

      take_validity(lease, sent, head, waited)
      lease.incarnation, lease.news, lease.channel = head.incarnation, head.news, head.channel if head.incarnation
      seen = Hash.new(0) # number of names of each claim in the reply
      rows.each { |row| row.item ? result(lease, *flight.delete(row.item.to_i), row, seen) : news(lease, row, seen) }
      return unless head.incarnation

      take_complete(lease, seen) if head.complete == "t"
      lease.unsure &&= head.complete.nil? # NULL = the reply has no news yet
      # End the requests that were not carried out, and that the application no longer wants.
      lease.asks.keys.each { |claim| done(claim) unless claim.state == :waiting || lease.unsure }
      lease.poll_at = NEVER
      if lease.pending.any? || head.complete.nil? then lease.poll_at = now + PAUSE
      elsif lease.queued.any?
        interval = @listens && @listening.key?(lease.channel) ? LOOK_INTERVAL : POLL_INTERVAL
        lease.poll_at = lease.hinted ? 0.0 : now + interval
      end
    end

    def take_validity(lease, sent, head, waited)
      if head.validity
        lease.certain = true
        answering
        lease.renewed(sent, head.validity.to_i / 1000.0)
      elsif waited
        lease.renew_at = now + LockElection.jitter(lease.longest_pause)
        lease.deadline = sent + lease.ttl - lease.margin unless lease.certain # safe: no grant was reported yet
      end
    end

    # Handles a complete reply: claims that do not appear in it were lost, or pending ones were lost before they were
    # durable and are sent again.
    def take_complete(lease, seen)
      missing = lease.claims.values.select { |claim| seen[claim] < claim.names.size }
      ask_again(lease, missing.select { |claim| claim.phase == :pending })
      missing.each do |claim|
        next if !%i[queued granted].include?(claim.phase) || lease.back.key?(claim)

        lost(claim, LockLost.new("the server has ended it", "LE001"))
      end
    end

    def news(lease, row, seen)
      token = row.token.to_i
      claim = @by_token[token] || lease.claims[row.owner]
      if row.event == "lost"
        return ask_again(lease, lease.pending.keys) if claim.nil?

        return lost(claim, LockLost.new("the server has ended it: #{row.reason}", "LE001"))
      end
      if claim.nil? || ![0, token].include?(claim.token)
        lease.ghosts[[row.kind, row.name, row.token]] = true if row.owner.to_s.start_with?("#{@marker}-")
        return
      end
      seen[claim] += 1
      if row.event == "evicted" then evict(claim, token)
      elsif claim.token.zero? then placed(claim, token, row.event == "granted")
      elsif row.event == "granted" && claim.phase == :queued then held(claim)
      end
    end

    # Handles the result of an item.
    def result(lease, request, name, row, seen)
      error = row.event == "error" ? LockElection.error_of(row.sqlstate, row.message, row.hint) : nil
      again = error&.passes? || (row.event == "pending" && !lease.asks.key?(request))
      hold_off if again
      case request
      when Array then lease.ghosts.delete(request) unless error&.passes?
      when Op
        return if again

        lease.ops.delete(request)
        request.answered(error || row.event)
      else
        return given_back(request, name, row.event, error) if lease.back.key?(request)

        result_of_ask(lease, request, row, error, seen)
      end
    end

    def result_of_ask(lease, claim, row, error, seen)
      case row.event
      when "granted", "queued"
        seen[claim] = claim.names.size
        placed(claim, row.token.to_i, row.event == "granted")
      when "pending"
        seen[claim] = claim.names.size
        lease.asks.delete(claim)
        claim.phase = :pending
        lease.pending[claim] = true
      else
        claim.phase = :new
        error ||= NotAcquired.new("somebody else holds it, or is queued for it")
        lease.renew_at = 0.0 if error.is_a?(LockLost)
        over(claim, error) unless error.passes? && !claim.attempt
        done(claim) if claim.state != :waiting
      end
    end

    # Handles a grant or a place of a claim. The application may no longer want it.
    def placed(claim, token, granted)
      lease = claim.lease
      lease.asks.delete(claim)
      lease.pending.delete(claim)
      claim.token = token
      @by_token[token] = claim
      claim.phase = granted ? :granted : :queued
      if claim.state != :waiting then give_back(claim)
      elsif granted then held(claim)
      elsif claim.overdue then over(claim, NotAcquired.new("#{claim} was not granted in time"))
      else lease.queued[claim] = true
      end
    end

    def held(claim)
      claim.phase = :granted
      claim.lease.queued.delete(claim)
      return if claim.state != :waiting

      claim.state = :held
      report(:acquired, claim)
      claim.wake
    end

    # Sends claims again whose results were lost before they were durable. They precede all later requests.
    def ask_again(lease, claims)
      later = lease.asks.dup
      claims.each do |claim|
        lease.pending.delete(claim)
        claim.phase = :sent
      end
      lease.asks.replace(claims.to_h { |claim| [claim, true] }.merge(later))
    end

    def give_back(claim)
      return if claim.lease.back.key?(claim)

      claim.left = claim.names.dup
      claim.lease.back[claim] = true
    end

    def given_back(claim, name, event, error)
      if error
        if claim.hold_for.positive? && (error.is_a?(InvalidRequest) || error.sqlstate == "53400")
          claim.error = error
          claim.hold_for = 0.0 # release it without hold_for
          claim.sent = 0
        elsif !error.passes?
          claim.error = error
          done(claim) # the hold ends with its lease
        end
      elsif event != "pending"
        # If a repeated release finds nothing held, an earlier copy of it has released the hold. It is then unknown
        # whether its hold_for was applied.
        again = claim.sent > 1 && (claim.hold_for.positive? ? nil : true)
        claim.released = event == "released" || again unless claim.released == false
        claim.left.delete_at(claim.left.index(name))
        done(claim) if claim.left.empty?
      end
    end

    def done(claim)
      lease = claim.lease
      claim.phase = :done
      [lease.asks, lease.back, lease.queued, lease.pending].each { |claims| claims.delete(claim) }
      lease.claims.delete(claim.owner)
      @by_token.delete(claim.token)
      claim.wake
    end

    # --- losses -------------------------------------------------------------------------------------------------------

    # Logs the loss of a hold, and calls on_lost in a separate thread.
    def tell_lost(claim)
      log(:warn, "lost #{claim}: #{claim.error.message}")
      return unless claim.on_lost

      hold = Hold.of(self, claim)
      LockElection.thread("lock_election-lost") { claim.on_lost.call(hold) }
    rescue ThreadError => e
      log(:error, "on_lost is not called of #{claim}: #{e.message}")
    end

    # Reports an evicted hold to the application as lost. Releases it on the server after the application has released
    # it (rule 6.4). A reply contains one such row for each name of the hold.
    def evict(claim, token)
      return if claim.evicted

      error = LockLost.new("it was evicted", "LE001")
      if claim.state == :held
        claim.state = :lost
        claim.error = error
        claim.evicted = true
        claim.released = false
        report(:lost, claim, error)
        tell_lost(claim)
      else
        unknown = claim.token.zero?
        over(claim, error)
        placed(claim, token, true) if unknown # evicted before its grant was known
      end
    end

    # Ends a claim of which the server has lost all names, or some of them.
    def lost(claim, error)
      several = claim.names.size > 1 && claim.lease.live?
      return if claim.evicted && several # its other names stay held until the application releases the hold

      held = claim.state == :held
      report(held ? :lost : :not_acquired, claim, error) if claim.open?
      claim.error = error if claim.open?
      claim.state = :lost if claim.open?
      tell_lost(claim) if held
      claim.released = false
      return done(claim) unless several

      claim.lease.queued.delete(claim)
      give_back(claim)
      claim.wake
    end

    # Ends a lease and all its claims; the session's own lease ends the session. gone: the server has ended it already.
    def end_lease(lease, error, gone: false)
      @revoke << lease.id if lease.live? && !gone
      lease.state = :ended
      lease.renew_at = lease.poll_at = NEVER
      @leases.delete(lease.ttl) if lease != @main
      lease.claims.values.each { |claim| lost(claim, error) }
      lease.ops.each_key { |op| op.answered(error) }
      lease.ops.clear
      return unless lease == @main && @end_error.nil?

      @leases.values.each { |other| end_lease(other, error) if other != lease }
      @end_error = error
      report(:ended, nil, error)
      lease.wake
    end

    def all_claims = @leases.each_value.flat_map { |lease| lease.claims.values }

    # Calls lease_sync() and returns the rows of the reply.
    def sync_call(lease, items, wait)
      learned = false
      begin
        lease.number += 1
        post(SYNC, [lease.id, lease.number.to_s, lease.incarnation, lease.news, items, wait], lease.call, @prepared)
          .map { |row| Row.new(*row) }
      rescue Error => e
        if @prepared && %w[26000 42P05 0A000].include?(e.sqlstate)
          @prepared = nil
          retry
        end
        raise if learned || !%w[3F000 42883].include?(e.sqlstate)

        learned = true
        learn
        retry
      end
    end
  end
end
