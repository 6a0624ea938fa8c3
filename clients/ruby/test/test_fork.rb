# frozen_string_literal: true

require_relative "helper"

# As in Puma, Sidekiq and Spring: a parent with a session forks.
class ForkTest < ServerTest
  # What the block returns in a child, which ends as any program does, with all finalizers.
  def in_child
    reader, writer = IO.pipe
    pid = fork do
      writer.write(Marshal.dump(yield))
      writer.close
    end
    writer.close
    result = reader.read
    Process.wait(pid)
    assert_predicate Process.last_status, :success?
    Marshal.load(result)
  end

  def test_child_is_silent
    session = connect
    hold = session.lock(@name, on_lost: ->(_) { flunk })
    pids = backends
    told = in_child do
      raised = assert_raises(LockElection::InvalidRequest) { session.lock("#{@name} 2", wait: 0) }
      GC.start
      [hold.valid?, hold.release, session.state, session.close, raised.message]
    end
    assert_equal [false, nil, :ended, nil], told[0..3]
    assert_match(/open one after the fork/, told[4])
    sleep(TTL * 0.6) # a renewal comes meanwhile
    assert_predicate hold, :valid?
    assert_equal pids, backends, "the connection is still the same"
    assert hold.release
  end

  # Over a connection of its own: the end of a child ends any that pg has open, and this library does not.
  def backends
    sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lock_election' ORDER BY pid"
    PG.connect { |connection| connection.exec(sql).column_values(0) }
  end

  def test_fork_inside_of_a_block
    session = connect
    session.lock(@name) do |hold|
      pid = fork { exit }
      Process.wait(pid)
      assert_predicate hold, :valid?
      assert_equal 1, locks
    end
    # A child that leaves the block by itself releases nothing.
    token = session.lock(@name) do |hold|
      pid = fork or break :child
      Process.wait(pid)
      assert_equal 1, locks
      hold.token
    end
    exit!(0) if token == :child
    assert_equal :connected, session.state
  end

  def test_child_connects_anew
    session = connect
    session.lock(@name) do
      told = in_child do
        LockElection.connect("", ttl: TTL) { |own| [own.try_lock(@name).nil?, own.lock("#{@name} 2") { 5 }, own.state] }
      end
      assert_equal [true, 5, :connected], told
    end
    assert_equal 1, session.lock(@name, wait: 5) { 1 }
  end

  def test_fork_while_many_threads_work
    session = connect
    stop = false
    workers = Array.new(4) { |i| Thread.new { session.lock("#{@name} #{i}", wait: 5) { sleep(0.001) } until stop } }
    10.times { assert_equal(:ended, in_child { session.state }) }
    stop = true
    workers.each(&:join)
    assert_equal :connected, session.state
  end
end
