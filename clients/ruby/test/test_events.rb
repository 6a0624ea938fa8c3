# frozen_string_literal: true

require_relative "helper"
require "logger"
require "stringio"

class EventsTest < ServerTest
  def setup
    super
    @events = Queue.new
  end

  # The events so far, each as its mode and kind.
  def kinds = all.map { |event| "#{event.mode} #{event.kind}" }

  def all
    @all ||= []
    @all << @events.pop until @events.empty?
    @all
  end

  def test_waits_and_holds
    slow = lambda { |event| # close waits for it
      sleep 0.05
      @events << event
    }
    session = connect(ttl: 10, on_event: slow)
    hold = session.lock(@name)
    waiter = waiting { session.lock(@name, shared: true) {} }
    assert_nil session.try_lock(@name, "#{@name}'")
    sleep 0.5
    hold.release
    waiter.join
    session.campaign(@name) { |term| term.proclaim("me") }
    session.close
    assert_equal ["lock acquired", "lock not_acquired", "lock released", "shared acquired", "shared released",
                  "election acquired", "election released"], kinds
    acquired, refused, released, waited, left = all
    assert_equal [[@name], hold.token, nil], [acquired.names, acquired.token, acquired.error]
    assert_in_delta Time.now, acquired.time, 60
    assert_operator acquired.seconds, :<, 60
    assert_equal [[@name, "#{@name}'"], 0], [refused.names, refused.token]
    assert_instance_of LockElection::NotAcquired, refused.error
    assert_nil released.error
    [released, waited].each { |event| assert_includes 0.5..60, event.seconds }
    assert_in_delta left.time - waited.time, left.seconds, 0.4, "without the wait"
  end

  def test_losses
    session = connect(ttl: 10, on_event: ->(event) { @events << event })
    session.lock(@name)
    db.exec_params("SELECT force_release_lock($1)", [@name])
    wait_until { kinds.size == 2 }
    second = session.lock(@name)
    db.exec_params("SELECT revoke_lease($1)", [session.lease])
    wait_until { kinds.size == 5 }
    session.reopen
    session.lock(@name) {}
    session.close
    assert_equal ["lock acquired", "lock lost", "lock acquired", "lock lost", "session ended", "lock acquired",
                  "lock released"], kinds
    all.values_at(1, 3, 4).each { |event| assert_instance_of LockElection::LockLost, event.error }
    assert_equal second.token, all[3].token
  end

  def test_eviction
    session = connect(ttl: 10, on_event: ->(event) { @events << event })
    session.lock(@name) do
      db.exec_params("SELECT evict_lock($1)", [@name])
      wait_until { kinds.size == 2 }
    end
    session.close
    assert_equal ["lock acquired", "lock lost"], kinds
    assert_instance_of LockElection::LockLost, all[1].error
  end

  def test_suspension
    session = LockElection.connect("application_name=events", ttl: 10, on_event: ->(event) { @events << event })
    session.lock(@name)
    db.exec("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'events'")
    wait_until { kinds.include?("session resumed") }
    session.close
    assert_equal ["lock acquired", "session suspended", "session resumed", "lock released"], kinds
    suspended, resumed = all.values_at(1, 2)
    assert_kind_of LockElection::Error, suspended.error
    assert_nil resumed.error
    assert_in_delta resumed.time - suspended.time, resumed.seconds, 1
    assert_operator resumed.seconds, :>, 0
  end

  # It hangs, and then raises: the locks do not notice.
  def test_bad_function
    logged = StringIO.new
    LockElection.logger = Logger.new(logged)
    entered = Queue.new
    leave = Queue.new
    session = connect(ttl: 10, on_event: lambda { |event|
      entered << event
      leave.pop
      raise event.kind == :acquired ? NotImplementedError : RuntimeError, "on #{event.kind}"
    })
    session.lock(@name) do |hold|
      entered.pop
      session.lock("#{@name}'") { assert_predicate hold, :valid? }
      assert_equal :connected, session.state
    end
    leave.close
    session.close
    raised = logged.string.scan(/: on (\w+) \((?:NotImplemented|Runtime)Error/).flatten
    assert_equal %w[acquired acquired released released], raised
  ensure
    LockElection.logger = nil
  end

  def test_function_that_closes_the_session
    session = nil
    ready = Queue.new
    session = connect(ttl: 10, on_event: lambda { |event|
      ready.pop
      @events << event
      session.close
    })
    hold = session.lock(@name)
    ready.close
    wait_until { session.state == :ended }
    assert_predicate hold, :lost?
    assert_raises(LockElection::InvalidRequest) { LockElection.connect(on_event: 5) }
  end
end
