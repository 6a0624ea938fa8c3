# frozen_string_literal: true

require_relative "helper"

class SessionTest < ServerTest
  def test_block
    session = connect
    value = session.lock(@name, wait: 5) do |hold|
      assert_predicate hold, :valid?
      assert_same hold, hold.check!
      assert_equal [@name], hold.names
      assert_operator hold.token, :>, 0
      assert_equal 1, locks
      :done
    end
    assert_equal :done, value
    wait_until { locks.zero? }
  end

  def test_block_that_fails
    session = connect
    assert_raises(ZeroDivisionError) { session.lock(@name) { 1 / 0 } }
    session.lock(@name) { break }
    assert_equal 7, session.lock(@name) { next 7 }
    wait_until { locks.zero? }
  end

  def test_hold
    hold = connect.lock(@name)
    assert_match(/Hold "#{@name}" token #{hold.token}, 2\.\d s left/, hold.inspect)
    assert hold.release
    assert_predicate hold, :lost?
    error = assert_raises(LockElection::LockLost) { hold.check! }
    assert_equal "LE001", error.sqlstate
    assert hold.release, "a second release does nothing"
  end

  def test_try
    first = connect
    second = connect
    hold = first.try_lock(@name)
    assert_nil second.try_lock(@name)
    assert_nil(second.try_lock(@name) { flunk })
    assert_raises(LockElection::NotAcquired) { second.lock(@name, wait: 0) }
    assert_raises(LockElection::NotAcquired) { second.lock(@name, wait: 0.1) { flunk } }
    hold.release
    assert_equal 1, second.try_lock(@name) { 1 }
  end

  # What the block raises is not taken for the result of the try.
  def test_try_with_a_block_that_does_not_acquire
    session = connect
    session.lock("#{@name} 2") do
      assert_raises(LockElection::NotAcquired) { session.try_lock(@name) { session.lock("#{@name} 2", wait: 0) } }
    end
  end

  def test_waits_in_order
    session = connect
    hold = session.lock(@name)
    order = Queue.new
    threads = Array.new(3) { |i| waiting { session.lock(@name) { order << i } } }
    hold.release
    threads.each(&:join)
    assert_equal [0, 1, 2], Array.new(3) { order.pop }
  end

  def test_many_threads
    session = connect
    count = 0
    threads = Array.new(50) do
      Thread.new do
        session.lock(@name) do
          before = count
          Thread.pass
          count = before + 1
        end
      end
    end
    threads.each(&:join)
    assert_equal 50, count
  end

  def test_shared_permits_several
    first = connect
    second = connect
    first.lock(@name, shared: true) do
      assert_equal 1, second.try_lock(@name, shared: true) { 1 }
      assert_nil second.try_lock(@name)
    end
    first.permit("#{@name} p", 2) do
      second.permit("#{@name} p", 2) do
        assert_raises(LockElection::NotAcquired) { second.permit("#{@name} p", 2, wait: 0) }
      end
    end
    first.lock("#{@name} a", ["#{@name} b"]) do |hold|
      assert_equal ["#{@name} a", "#{@name} b"], hold.names
      assert_equal([true, true], hold.names.map { |one| second.try_lock(one).nil? })
    end
  end

  def test_each
    first = connect
    second = connect
    names = Array.new(300) { |i| "#{@name} #{i}" }
    first.lock(names[7]) do
      holds = second.try_each(names)
      assert_equal([7], holds.each_index.select { |i| holds[i].nil? })
      holds.compact.each(&:release)
    end
    assert_empty first.try_each([])
  end

  def test_ttl_of_its_own
    session = connect(name: @name)
    session.lock(@name, ttl: 60) do |hold|
      assert_operator hold.time_left, :>, 40
      sql = "SELECT count(*) FROM lock_election.leases WHERE starts_with(owner, $1)"
      assert_equal "2", db.exec_params(sql, ["#{@name}#"]).getvalue(0, 0)
    end
  end

  def test_hold_for
    session = connect
    hold = session.lock(@name)
    hold.release(hold_for: 60)
    assert_nil session.try_lock(@name)
    hold = session.lock("#{@name} 2")
    assert_raises(LockElection::LimitExceeded) { hold.release(hold_for: 24 * 86_400) }
    assert_equal 1, session.try_lock("#{@name} 2") { 1 }
  end

  def test_once
    session = connect
    assert_equal :ran, session.once(@name, hold_for: 60) { :ran }
    assert_nil(session.once(@name, hold_for: 60) { flunk })
    assert_equal(:elsewhere, session.once(@name, hold_for: 60, otherwise: :elsewhere) { flunk })
    assert_raises(ZeroDivisionError) { session.once("#{@name} 2", hold_for: 60) { 1 / 0 } }
    assert_nil(connect.once("#{@name} 2", hold_for: 60) { flunk })
    assert_raises(LockElection::LimitExceeded) { session.once("#{@name} 3", hold_for: 24 * 86_400) { flunk } }
  end

  # Timeout raises at any line: nothing is held and nothing waits afterwards.
  def test_interrupted_wait
    session = connect
    session.lock(@name) do
      assert_raises(Timeout::Error) { Timeout.timeout(0.3) { session.lock(@name) { flunk } } }
      wait_until { waiters.zero? }
      waiter = waiting { session.lock(@name) }
      waiter.kill.join
      wait_until { waiters.zero? }
    end
    wait_until { locks.zero? }
  end

  def test_interrupted_block
    session = connect
    40.times do |i|
      Timeout.timeout(0.001 * i) { session.lock(@name) { sleep(0.01) } }
    rescue Timeout::Error
      nil
    end
    wait_until { locks.zero? && waiters.zero? }
    assert_equal :connected, session.state
  end

  def test_lost
    session = connect
    told = Queue.new
    hold = session.lock(@name, on_lost: ->(lost) { told << [lost.token, Thread.current.name] })
    db.exec_params("SELECT force_release_lock($1)", [@name])
    assert_equal [hold.token, "lock_election-lost"], Timeout.timeout(10) { told.pop }
    assert_predicate hold, :lost?
    error = assert_raises(LockElection::LockLost) { hold.check! }
    assert_match(/is not held any more: the server has ended it/, error.message)
    assert_equal false, hold.release
    assert_equal :connected, session.state
  end

  def test_lease_that_is_revoked
    session = connect
    hold = session.lock(@name)
    db.exec_params("SELECT acquire_lock($1, '1 min')", ["#{@name} 2"])
    waiter = waiting("#{@name} 2") { session.lock("#{@name} 2") }
    db.exec_params("SELECT revoke_lease($1)", [session.lease])
    assert_raises(LockElection::LockLost) { waiter.value }
    assert_predicate hold, :lost?
    assert_equal :ended, session.state
    assert_raises(LockElection::LockLost) { session.lock(@name) }
    assert_equal :connected, session.reopen.state
    assert_equal 1, session.lock(@name, wait: 5) { 1 }
  end

  def test_forgotten
    session = connect
    Thread.new { session.lock(@name) && nil }.join
    wait_until do
      GC.start
      locks.zero?
    end
  end

  def test_close
    session = connect
    session.lock(@name)
    other = connect
    waiter = waiting { other.lock(@name) }
    other.close
    assert_raises(LockElection::Canceled) { waiter.value }
    session.close
    assert_equal 0, locks
    assert_equal :ended, session.state
    assert_raises(LockElection::Canceled) { session.lock(@name) }
    assert_nil session.close
    assert_empty(Thread.list.select { |thread| thread.name.to_s.start_with?("lock_election") })
  end

  def test_block_of_connect
    kept = nil
    assert_equal 3, LockElection.connect("", ttl: TTL) { |session| (kept = session) && 3 }
    assert_equal :ended, kept.state
  end

  # The server gets away with a hold for a moment only.
  def test_connection_is_ended
    session = connect
    hold = session.lock(@name)
    pid = db.exec_params("SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND pid <> pg_backend_pid()",
                         ["lock_election"]).column_values(0)
    pid.each { |one| db.exec_params("SELECT pg_terminate_backend($1)", [one]) }
    wait_until { session.state == :connected && session.lock("#{@name} 2", wait: 5) { true } }
    assert_predicate hold, :valid?
    assert hold.release
  end

  # As some programs do with all threads: calls fail, and the hold ends at its deadline.
  def test_session_s_thread_is_killed
    session = connect
    @cleanup.clear
    hold = session.lock(@name)
    Thread.list.select { |thread| thread.name == "lock_election" }.each { |thread| thread.kill.join }
    error = assert_raises(LockElection::Error) { session.lock("#{@name} 2") }
    assert_match(/thread was killed/, error.message)
    assert_raises(LockElection::Error) { session.close }
    wait_until { hold.lost? }
  end

  # The end of a program that has not closed its session, and whose threads still wait.
  def test_end_of_a_program
    out, status = run_ruby("-e", <<~RUBY)
      require "lock_election"
      require "logger"
      LockElection.logger = Logger.new($stdout)
      session = LockElection.connect("", ttl: #{TTL})
      hold = session.lock("#{@name}", on_lost: ->(_) { puts("lost") })
      Thread.new { session.lock("#{@name}") }
      sleep(0.1)
      puts("held") if hold.valid?
    RUBY
    assert_predicate status, :success?
    assert_equal "held\n", out
  end

  def test_errors
    assert_raises(LockElection::Unavailable) { LockElection.connect("host=127.0.0.1 port=1") }
    assert_raises(LockElection::Unavailable) { LockElection.connect("host=nowhere.invalid") }
    assert_raises(LockElection::Unavailable) { LockElection.connect({ dbname: "nowhere" }) }
    error = assert_raises(LockElection::NotInstalled) { LockElection.connect("dbname=template1") }
    assert_match(/CREATE EXTENSION lock_election/, error.message)
    assert_empty(Thread.list.select { |thread| thread.name == "lock_election" })
  end
end
