# frozen_string_literal: true

# The agent of the conformance suite (clients/conformance/README.md). Each command is a thread.

$LOAD_PATH.unshift(File.join(__dir__, "lib"))
require "json"
require "logger"
require "lock_election"

FEATURES = %w[
  shared permits several each election observe fence cancel fork hold_for own_ttl once abandon block threads
].freeze
STATUS = {
  LockElection::NotAcquired => "not_acquired", LockElection::LockLost => "lost", LockElection::Canceled => "canceled",
  LockElection::DeadlockDetected => "deadlock", LockElection::LimitExceeded => "limit",
  LockElection::AccessDenied => "denied", LockElection::InvalidRequest => "invalid", KeyError => "invalid",
  LockElection::NotInstalled => "not_installed", LockElection::Unavailable => "unavailable",
  LockElection::OutcomeUnknown => "unknown"
}.freeze

# Raised by command "cancel" in the thread of a waiting call, like the error of Timeout.
class Interruption < StandardError; end

class Agent
  def initialize
    @mutex = Monitor.new
    @sessions = {}
    @holds = {}
    @watches = {}
    @running = {}
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)

  def seconds(ms) = ms && ms / 1000.0

  def say(fields) = @mutex.synchronize { $stdout.write("#{JSON.generate(fields)}\n") }

  # --- holds: each is reported as lost once, and not after its release ------------------------------------------------

  def new_hold(name)
    entry = { told: false }
    @mutex.synchronize { @holds[name] = entry }
    ->(_hold) { tell_lost(name, entry, "told by the library") }
  end

  def tell_lost(name, entry, why)
    @mutex.synchronize do
      next if entry[:told]

      entry[:told] = true
      say(event: "lost", hold: name, why: why, at: now)
    end
  end

  # Returns a hold. First reports its loss, if it is lost.
  def hold(name)
    entry = @holds.fetch(name)
    tell_lost(name, entry, "the local test") if entry[:hold].lost?
    entry[:hold]
  end

  def forget(name)
    @mutex.synchronize do
      entry = @holds.delete(name)
      entry[:told] = true
      entry.delete(:hold)
    end
  end

  # --- commands -------------------------------------------------------------------------------------------------------

  def do_open(c)
    session = @sessions[c["session"]] = LockElection.connect(c["dsn"], ttl: seconds(c["ttl"]), name: c["name"])
    { lease: session.lease.to_s }
  end

  def do_acquire(c)
    session = @sessions.fetch(c["session"])
    options = { wait: seconds(c["wait"]), ttl: seconds(c["ttl"]), on_lost: new_hold(c["hold"]) }
    got(c, interruptible do
      if c["mode"] == "permit" then session.permit(c["names"][0], c["permits"], **options)
      else session.lock(*c["names"], shared: c["mode"] == "shared", **options)
      end
    end)
  end

  def do_campaign(c)
    session = @sessions.fetch(c["session"])
    options = { wait: seconds(c["wait"]), on_lost: new_hold(c["hold"]) }
    got(c, interruptible { session.campaign(c["election"], c["value"], **options) })
  end

  def got(c, hold)
    @holds[c["hold"]][:hold] = hold
    @holds[c["hold"]][:session] = c["session"]
    { token: hold.token.to_s }
  end

  # Only during the wait, so that no interruption occurs while a hold is being returned.
  def interruptible(&block) = Thread.handle_interrupt(Interruption => :on_blocking, &block)

  def do_try_each(c)
    holds = @sessions.fetch(c["session"]).try_each(c["names"], shared: c["mode"] == "shared")
    c["holds"].zip(holds) do |name, hold|
      next unless hold

      new_hold(name)
      got({ "hold" => name, "session" => c["session"] }, hold)
    end
    { tokens: holds.map { |hold| hold&.token&.to_s } }
  end

  def do_once(c)
    session = @sessions.fetch(c["session"])
    result = session.once(c["names"][0], hold_for: seconds(c["hold_for"]), otherwise: :elsewhere) do
      sleep(seconds(c["ms"] || 0))
    end
    { ran: result != :elsewhere }
  end

  def do_valid(c)
    hold = hold(c["hold"])
    { valid: hold.valid?, deadline: hold.time_left * 1000 }
  end

  def do_fence(c)
    hold = hold(c["hold"])
    connection = PG.connect(c["dsn"])
    connection.transaction do
      hold.fence(connection)
      connection.exec(c["sql"])
    end
    {}
  ensure
    connection&.close
  end

  def do_proclaim(c)
    hold(c["hold"]).proclaim(c["value"])
    {}
  end

  def do_release(c)
    released = hold(c["hold"]).release(hold_for: seconds(c["hold_for"] || 0))
    tell_lost(c["hold"], @holds[c["hold"]], "the release") if released == false
    forget(c["hold"])
    { status: { true => "ok", false => "lost", nil => "unknown" }[released] }
  end
  alias do_resign do_release

  def do_leader(c)
    leader = @sessions.fetch(c["session"]).leader(c["election"])
    { value: leader&.value, term: leader&.term&.to_s }
  end

  def do_observe(c)
    watch = @watches[c["observer"]] = @sessions.fetch(c["session"]).observe(c["election"])
    Thread.new do
      watch.each do |leader|
        say(event: "leader", observer: c["observer"], value: leader&.value, term: leader&.term&.to_s, at: now)
      end
    end
    {}
  end

  def do_unobserve(c)
    @watches.delete(c["observer"]).close
    {}
  end

  def do_state(c) = { state: @sessions.fetch(c["session"]).state.to_s }

  def do_abandon(c)
    forget(c["hold"])
    nil
  ensure
    Thread.new { GC.start } # in a stack that has never had the hold
  end

  def do_close(c)
    @mutex.synchronize do
      @holds.each do |name, entry|
        next if entry[:session] != c["session"]

        hold(name)
        entry[:told] = true
      end
    end
    @sessions.fetch(c["session"]).close(limit: seconds(c["limit"]))
    {}
  end

  def do_fork(c)
    session = @sessions.fetch(c["session"])
    hold = hold(c["hold"])
    reader, writer = IO.pipe
    child = fork { in_child(session, hold, writer) }
    writer.close
    status = reader.read
    Process.wait(child)
    { child: status, exit: Process.last_status.exitstatus }
  end

  def in_child(session, hold, writer)
    begin
      session.lock("fork", wait: 0)
      writer.write("ok")
    rescue LockElection::Error => e
      writer.write(failure(e)[:status])
    end
    writer.close
    hold.release
    session.close
    exit(hold.lost? ? 0 : 1) # with all finalizers, which must not end the parent's connection
  end

  def do_block(c)
    till = now + c["ms"]
    nil while now < till
    {}
  end

  def do_threads(_)
    { threads: Thread.list.count { |thread| thread.name.to_s.start_with?("lock_election") },
      connections: ObjectSpace.each_object(PG::Connection).count { |connection| !connection.finished? } }
  end

  def cancel(c)
    say(id: c["id"], status: "ok", sent: now, at: now)
    @mutex.synchronize { @running[c["of"]]&.raise(Interruption) }
  end

  # --- running them ---------------------------------------------------------------------------------------------------

  # The fields of a reply that describe an error.
  def failure(error)
    if error.is_a?(PG::Error)
      state = error.result&.error_field(PG::PG_DIAG_SQLSTATE) || "08006"
      error = LockElection.error_of(state, error.message)
    end
    status = error.is_a?(Interruption) ? "canceled" : STATUS.find { |kind, _| error.is_a?(kind) }&.last || "failed"
    fields = { status: status, message: error.message }
    fields[:sqlstate] = error.sqlstate if error.respond_to?(:sqlstate) && !error.sqlstate.empty?
    fields
  end

  def run(c)
    sent = now
    fields = { status: "ok" }.merge(send("do_#{c["do"]}", c) || {})
    finish(c, sent, fields)
  rescue StandardError => e
    fields = failure(e)
    at = now
    @mutex.synchronize { @holds.delete(c["hold"]) } if %w[acquire campaign].include?(c["do"])
    fields[:shown] = "#{e.inspect} #{e.full_message(highlight: false)}" if c["do"] == "open"
    warn("#{c}: #{e.full_message(highlight: false)}") if fields[:status] == "failed"
    finish(c, sent, fields, at)
  end

  def finish(c, sent, fields, at = now)
    @mutex.synchronize { @running.delete(c["id"]) }
    say({ id: c["id"], sent: sent, at: at }.merge(fields))
  end

  def start(line)
    c = JSON.parse(line)
    return cancel(c) if c["do"] == "cancel"
    return run(c) if c["do"] == "block"
    return say(id: c["id"], status: "unsupported", sent: now, at: now) unless respond_to?("do_#{c["do"]}")

    @mutex.synchronize do
      Thread.handle_interrupt(Interruption => :never) { @running[c["id"]] = Thread.new { run(c) } }
    end
  end

  def main
    $stdin.each_line { |line| start(line) }
    @sessions.each_value.map { |session| Thread.new { session.close(limit: 1) } }.each(&:join)
  end
end

if ARGV == ["--capabilities"]
  puts JSON.generate(client: "ruby", version: LockElection::VERSION, modes: ["sync"], features: FEATURES)
else
  $stdout.sync = true
  LockElection.logger = Logger.new($stderr)
  Agent.new.main
end
