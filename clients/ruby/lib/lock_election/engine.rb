# frozen_string_literal: true

module LockElection
  # The state of a session, and its thread, which alone uses the connection. The mutex protects all state; the thread
  # holds it except while it pauses. The numbers of rules refer to docs/reference/client-protocol.md.
  class Engine < Request # :nodoc:
    LISTEN_PATIENCE = 0.3
    LISTEN_ON = 1.0 # seconds for which a session keeps listening after the last wait
    PAUSE = 0.1
    LOOK_INTERVAL = 5.0
    POLL_INTERVAL = 0.25
    CHANGES = 100 # changes of an election that are read at a time

    # Finds the schema of the extension or of the portable edition. The portable edition works only in READ COMMITTED,
    # so the statement makes that the default if the backend is the session's own, and not one of a pooler.
    LEARN = <<~SQL
      SELECT pg_catalog.quote_ident(n.nspname), pg_catalog.current_database(), pg_catalog.pg_is_in_recovery(),
        pg_catalog.pg_backend_pid(), pg_catalog.current_setting('lock_election.notify', true)
      FROM (VALUES (0)) AS v(v) LEFT JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) COALESCE(
        (SELECT e.extnamespace FROM pg_catalog.pg_extension e WHERE e.extname OPERATOR(pg_catalog.=) 'lock_election'),
        (SELECT CASE WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {pid}
            AND pg_catalog.set_config('default_transaction_isolation', 'read committed', false) IS NOT NULL
            AND pg_catalog.set_config('default_transaction_read_only', 'off', false) IS NULL
          THEN NULL ELSE p.pronamespace END
        FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace i ON i.nspname OPERATOR(pg_catalog.=) '_lock_election'
          AND i.nspowner OPERATOR(pg_catalog.=) p.proowner WHERE p.proname OPERATOR(pg_catalog.=) 'lease_holds'
          LIMIT 1))
    SQL
    CHANGES_OF = "SELECT change, term, how, candidate FROM {s}.election_history($1, $2) " \
                 "ORDER BY change LIMIT #{CHANGES}".freeze
    # The last change, or the current term itself if the history no longer has its changes.
    PRESENT = <<~SQL
      SELECT change, term, how, candidate FROM {s}.election_history($1,
        COALESCE((SELECT term FROM {s}.current_leader($1)), 0))
      UNION ALL SELECT 0, term, 'elected', candidate FROM {s}.current_leader($1) ORDER BY 1 DESC LIMIT 1
    SQL

    attr_reader :ttl, :main, :schema, :own_name, :end_error, :close_until, :finished, :thread

    def initialize(conninfo, ttl, name, on_event = nil)
      super()
      @pid = Process.pid
      @ttl = ttl
      digits = SecureRandom.hex(8)
      @own_name = name.byteslice(0, 200).scrub("")
      @marker = "#{@own_name}##{digits}"
      @numbers = 0
      @main = Lease.new(ttl)
      @leases = { ttl => @main }
      @revoke = [] # numbers of the leases to revoke
      @by_token = {}
      @dropped = [] # claims that the program dropped unreleased; filled by finalizers, in any thread
      @calls = []
      @observers = []
      # the connection
      @schema = @notify = @told_pid = ""
      @prepared = nil
      @connected = @pooled = @heard = false
      @listens = nil # whether LISTEN works; nil = not tested yet
      @test_channel = "le_self_#{digits}"
      @listening = {}
      @unlisten_at = NEVER
      @failures = 0 # failed connections and renewals since the last successful renewal
      @connect_at = @pause_until = 0.0
      # the session
      @turned = false # whether the last job was a turn
      @opened = @ending = @finished = false
      @suspended_at = nil # time of the last suspension that was reported to on_event
      @mutex = Mutex.new
      @alarmed = false
      @wire = Wire.new(conninfo, self)
      @bell, @ringer = IO.pipe
      ENGINES[self] = true
      report_to(on_event) if on_event
      @thread = LockElection.thread("lock_election") { run }
    end

    # --- the session's thread -----------------------------------------------------------------------------------------

    # Waits without the mutex until that time, an alarm, or the connection is ready. Then checks the deadlines, so that
    # a loss is reported in time even if the connection hangs (rule 3.5). Returns whether the connection is ready.
    def pause(till, read: nil, write: nil)
      left = ([till, watch].min - now).clamp(0, NEVER)
      found = unlocked { IO.select([@bell, read].compact, [write].compact, nil, left == NEVER ? nil : left) }
      if found&.first&.include?(@bell)
        @alarmed = false
        @bell.read_nonblock(64, exception: false)
      end
      tick
      !found.nil? && (found[0].include?(read) || found[1].include?(write))
    end

    def notified(channel)
      @heard ||= channel == @test_channel
      @leases.each_value do |lease|
        next if lease.channel != channel

        lease.hinted = true # may concern a request of the current call, whose reply is not read yet
        lease.poll_at = 0.0 if lease.queued.any?
      end
      observe_soon([channel])
    end

    private

    # Runs the block without the mutex. If the thread is killed in the block, as at the end of the process, locks the
    # mutex nevertheless, because the caller unlocks it.
    def unlocked
      @mutex.unlock
      yield
    ensure
      Thread.handle_interrupt(Object => :never) { @mutex.lock }
    end

    def run
      @mutex.synchronize do
        until @finished
          tick
          job = next_job
          perform(job || [:idle])
        end
      end
    rescue Exception => e # rubocop:disable Lint/RescueException -- otherwise the callers would wait forever
      log(:error, "the session ends: #{e.full_message(highlight: false)}")
      sync { crashed(e) }
    ensure
      [@bell, @ringer].each(&:close)
      ENGINES.delete(self)
    end

    def perform(job)
      @turned = job[0] == :turn
      send(*job)
      unlocked { Thread.pass } if @turned # lets the threads that were woken up join the next call
    rescue Broken => e
      broken(e.error)
    end

    def idle = @wire.idle(due)

    def log(level, text) = LockElection.logger&.public_send(level, "lock_election: #{text}")

    # Ends the leases whose deadline has passed, and releases the holds that the program dropped unreleased.
    def tick
      while (claim = @dropped.shift)
        over(claim, Canceled.new("the program has forgotten it"))
      end
      time = now
      @leases.values.each do |lease|
        next unless lease.live? && time >= lease.deadline

        end_lease(lease, LockLost.new("the lease could not be renewed in time#{why}"))
      end
    end

    # --- the next job -------------------------------------------------------------------------------------------------

    def next_job
      time = now
      return if @ending
      return [:finish] if @close_until || (@end_error && !@opened)
      return (time >= @connect_at ? [:connect] : nil) unless @connected

      urgent = @leases.each_value.min_by(&:renew_at)
      return [:turn, urgent] if urgent.renew_at <= time
      return if time < @pause_until

      (@turned && other(time)) || asked(time) || other(time)
    end

    # Leases with releases go first, because others may be waiting for these locks (rule 9.2).
    def asked(time)
      @leases.values.partition { |lease| lease.back.any? || lease.ghosts.any? }.flatten(1).each do |lease|
        return [:grant, lease] if lease.state == :new && (lease == @main || lease.asks.any?)

        busy = [lease.asks, lease.back, lease.ops, lease.ghosts].any?(&:any?) || time >= lease.poll_at
        return [:turn, lease] if lease.live? && busy
      end
      nil
    end

    def other(time)
      waits = @listening.any? || @observers.any? || @leases.each_value.any? { |lease| lease.queued.any? }
      wanted = waits ? channels : []
      missing = wanted - @listening.keys
      return [:listen, missing] if @listens != false && missing.any?

      observer = @observers.find { |one| time >= one.due }
      return [:look_at, observer] if observer
      return [:serve] if @calls.any?
      return [:revoke] if @revoke.any?

      useless = @listening.keys - wanted
      @unlisten_at = NEVER if useless.empty?
      @unlisten_at = time + LISTEN_ON if useless.any? && @unlisten_at == NEVER
      [:unlisten, useless] if time >= @unlisten_at
    end

    # Returns the channels that the session needs to listen on.
    def channels
      own = @leases.each_value.filter_map { |lease| lease.channel if lease.queued.any? }
      (own + @observers.map(&:channel)).uniq
    end

    # Returns the time of the next job, if there is none now and no new request arrives.
    def due
      return @connect_at unless @connected

      times = @leases.each_value.map do |lease|
        [lease.asks, lease.back, lease.ops].any?(&:any?) || lease.state == :new ? 0.0 : lease.poll_at
      end
      times << (@calls.any? || @revoke.any? ? 0.0 : @unlisten_at)
      times.concat(@observers.map(&:due))
      [[times.min, @pause_until].max, *@leases.each_value.map(&:renew_at)].min
    end

    # Returns the time of the next clock check, which is due even while a job runs.
    def watch
      deadlines = @leases.each_value.filter_map { |lease| lease.deadline if lease.live? }
      deadlines << (now + LONGEST_SLEEP) if @leases.each_value.any? { |lease| lease.claims.any? }
      [*deadlines, @close_until || NEVER].min
    end

    # --- statements ---------------------------------------------------------------------------------------------------

    def query(sql, *params, simple: false)
      post(sql, simple ? nil : params, call)
    rescue Error => e
      raise unless @opened && %w[3F000 42883].include?(e.sqlstate) && sql.include?("{s}")

      learn # the schema was renamed, or the extension was created again in another schema
      post(sql, simple ? nil : params, call)
    end

    def post(sql, params, limit, name = nil)
      @wire.query(sql.gsub("{s}", @schema), params, now + limit, name)
    rescue Error => e
      raise Broken, e if e.breaks?

      @trouble = e
      raise
    end

    # Counts a failure. Returns the time of the next attempt to connect or renew. The first retry is immediate.
    def failed
      delay = [Lease::RETRY_FIRST * 2.0**(@failures - 1).clamp(0, 10), @main.longest_pause].min
      @failures += 1
      report(:suspended, nil, @trouble) if @suspended_at.nil? && state == :suspended
      now + (@failures > 1 ? LockElection.jitter(delay) : 0.0)
    end

    def hold_off = @pause_until = now + LockElection.jitter(PAUSE)

    # --- the connection -----------------------------------------------------------------------------------------------

    # Handles a broken connection. Its last call may still take effect until the server receives the next call.
    def broken(error)
      log(:info, "the connection broke: #{error.message}") if @connected
      @trouble = error
      @wire.close
      @connected = false
      @prepared = @listens = nil
      @listening.clear
      @connect_at = failed
      @leases.values.each do |lease|
        unanswered(lease)
        # Fail now if there is no lease yet that a retry could save.
        not_granted(lease, error) if lease.state == :new && !(@opened && error.passes?)
      end
      return if !@opened || error.passes?

      # Callers that do not wait get the error. Waiters and holds stay until the lease's deadline.
      @leases.each_value { |lease| lease.asks.keys.each { |claim| over(claim, error) if claim.attempt } }
      @calls.shift.answered(error) while @calls.any?
    end

    def unanswered(lease)
      lease.unsure ||= lease.flight.each_value.any? { |request, _| request.is_a?(Claim) }
      lease.flight = {}
    end

    def connect
      alive = @leases.each_value.any?(&:live?)
      @told_pid = @wire.connect(alive ? call : nil)
      begin
        learn
      rescue Error => e
        raise Broken, e
      end
      @connected = true
      @leases.each_value { |lease| lease.renew_at = lease.live? ? 0.0 : NEVER }
      @observers.each { |observer| observer.due = 0.0 }
    end

    # Reads the extension's schema and the connection's properties (rule 1.3), and prepares the statement.
    def learn
      @prepared = nil
      schema, database, standby, pid, notify = post(LEARN.sub("{pid}", @told_pid), [], call).first
      if standby == "t"
        @wire.avoid_host
        raise Broken, Unavailable.new("the server is a standby", "25006")
      end
      raise LockElection.error_of("3F000", "lock_election is not installed in database \"#{database}\"") if schema.nil?

      @schema = schema
      @notify = notify.to_s
      @pooled = pid != @told_pid
      return if @pooled # a pooler may send each call to a different backend

      name = "lock_election_sync_#{@numbers += 1}"
      @wire.prepare(name, SYNC.gsub("{s}", schema), now + call)
      @prepared = name
    end

    # --- leases -------------------------------------------------------------------------------------------------------

    def grant(lease)
      sent = now
      begin
        params = [LockElection.ms(lease.ttl), @marker, LockElection.ms(lease.call / 2)]
        rows = query("SELECT {s}.grant_lease($1, $2, $3)", *params)
      rescue Error => e
        return @opened && e.passes? ? hold_off : not_granted(lease, e)
      end
      lease.id = rows[0][0]
      lease.state = :live
      answering
      lease.renewed(sent, lease.ttl)
      @opened = true
      lease.wake
    end

    def not_granted(lease, error)
      lease.claims.values.each { |claim| over(claim, error) }
      return @leases.delete(lease.ttl) if lease != @main

      @end_error = error
      lease.wake
    end

    def revoke
      begin
        query("SELECT {s}.revoke_lease($1)", @revoke[0])
      rescue Error => e
        log(:info, "a lease is not revoked, and ends by itself: #{e.message}")
      end
      @revoke.shift
    end

    # --- listening, calls and observers -------------------------------------------------------------------------------

    # Listens on more channels. On a new connection, first tests whether it receives its own notification (rule 6.2).
    def listen(channels)
      test = @listens.nil?
      @heard = @listens = false if test
      return if test && (@pooled || !%w[all waiters elections].include?(@notify))

      begin
        sql = channels.map { |channel| "LISTEN \"#{channel}\"" }
        sql.push("LISTEN #{@test_channel}", "NOTIFY #{@test_channel}") if test
        query(sql.join("; "), simple: true)
        until_heard(now + LISTEN_PATIENCE) if test
        query("UNLISTEN #{@heard ? @test_channel : "*"}", simple: true) if test
      rescue Error => e
        log(:info, "LISTEN does not work: #{e.message}")
        @heard = false
      end
      @listens = @heard
      return @listening.clear unless @listens

      channels.each { |channel| @listening[channel] = true }
      # The notification of a grant before the LISTEN did not reach this connection, so read the news now.
      @leases.each_value { |lease| lease.poll_at = 0.0 if channels.include?(lease.channel) && lease.queued.any? }
      observe_soon(channels)
    end

    def until_heard(till)
      @wire.idle(till) until @heard || now >= till || @close_until
    end

    def unlisten(channels)
      channels.each { |channel| @listening.delete(channel) }
      @unlisten_at = NEVER
      query(@listening.empty? ? "UNLISTEN *" : channels.map { |one| "UNLISTEN \"#{one}\"" }.join("; "), simple: true)
    rescue Error => e
      log(:info, "UNLISTEN does not work: #{e.message}")
    end

    # Runs the first statement of the callers.
    def serve
      call = @calls[0]
      if call.answer.nil? # the caller still waits
        begin
          call.answered(query(call.sql, *call.params))
        rescue Error => e
          return hold_off if e.passes?

          call.answered(e)
        end
      end
      @calls.delete(call)
    end

    def observe_soon(channels)
      @observers.each { |observer| observer.due = 0.0 if channels.include?(observer.channel) }
    end

    # Reads the changes of an election, and reports each once, in order (rule 12.3).
    def look_at(observer)
      observer.due = now + (@listening.key?(observer.channel) ? LOOK_INTERVAL : 4 * POLL_INTERVAL)
      begin
        sql = observer.after ? CHANGES_OF : PRESENT
        rows = query(sql, observer.election, *observer.after&.to_s)
      rescue Error => e
        observer.due = now if e.passes?
        return e.passes? ? hold_off : nil
      end
      rows = [["0"]] if observer.after.nil? && rows.empty? # the election never had a leader
      rows.each do |change, term, how, candidate|
        observer.after = change.to_i
        leader = %w[elected proclaimed].include?(how) ? Leader.new(candidate, term.to_i) : nil
        next if leader == observer.last || !@observers.include?(observer)

        observer.last = leader
        observer.queue << [leader]
      end
      observer.due = now if rows.size == CHANGES
    end

    # --- the end ------------------------------------------------------------------------------------------------------

    # Runs the session's last job: revokes its leases, which releases all holds, within the limit of close().
    def finish
      @ending = true
      live = @leases.values.select(&:live?)
      @revoke.concat(live.map(&:id))
      attempts = 0
      while (@revoke.any? || closing_names(live)) && now < (@close_until || 0) && attempts < 2
        begin
          if !@connected
            attempts += 1
            connect
          elsif now < @pause_until then pause(@pause_until)
          elsif (lease = closing_names(live)) then turn(lease)
          else revoke
          end
        rescue Broken => e
          broken(e.error)
        end
      end
    ensure
      ended
    end

    # Returns a lease whose releases have a hold_for, or nil. These are sent first: a revocation does not close names.
    def closing_names(leases) = leases.find { |lease| lease.back.each_key.any? { |claim| claim.hold_for.positive? } }

    def crashed(error)
      @ending = true
      end_lease(@main, LockLost.new("an error in the client: #{error.message}"))
      ended
    end

    def ended
      return if @finished

      @finished = true
      @connected = false
      @wire.close
      all_claims.each { |claim| done(claim) }
      @observers.each { |observer| observer.queue.close }
      @events&.close
      [*@calls, *@leases.each_value.flat_map { |lease| lease.ops.keys }].each do |request|
        request.answered(Canceled.new("the session was closed"))
      end
      wake
    end
  end

  # The sessions of this process. A forked child abandons their connections immediately.
  ENGINES = {} # rubocop:disable Style/MutableConstant
  private_constant :Engine, :ENGINES

  # Hook that runs in each forked child.
  module AfterFork # :nodoc:
    def _fork
      super.tap { |pid| LockElection.send(:after_fork) if pid.zero? }
    end
  end
  private_constant :AfterFork
  Process.singleton_class.prepend(AfterFork)

  def self.after_fork
    ENGINES.each_key(&:abandon)
    ENGINES.clear
  end
  private_class_method :after_fork
end
