# frozen_string_literal: true

require_relative "helper"

class ElectionsTest < ServerTest
  def test_lead
    session = connect(name: "me")
    told = Queue.new
    observer = Thread.new { connect.observe(@name) { |leader| told << leader&.value } }
    assert_nil pop(told)
    value = session.lead(@name) do |term|
      assert_instance_of LockElection::Term, term
      assert_equal LockElection::Leader.new("me", term.token), session.leader(@name)
      assert_equal "me", pop(told)
      term.proclaim("still me")
      assert_equal "still me", pop(told)
      :led
    end
    assert_equal :led, value
    assert_nil pop(told)
    assert_nil session.leader(@name)
    observer.kill.join
  end

  def pop(queue) = Timeout.timeout(15) { queue.pop }

  def test_leads_again_after_a_loss
    terms = []
    connect.lead(@name, "me") do |term|
      terms << term.token
      next if terms.size > 1

      db.exec_params("SELECT force_resign($1)", [@name])
      wait_until { term.lost? }
      term.check!
    end
    assert_equal 2, terms.uniq.size
  end

  def test_errors_of_the_block
    session = connect
    assert_raises(ZeroDivisionError) { session.lead(@name, "me") { 1 / 0 } }
    assert_raises(LockElection::NotAcquired) { session.lead(@name, "me") { session.campaign(@name, "2", wait: 0) } }
    assert_raises(LockElection::InvalidRequest) { session.lead(@name, "") { flunk } }
    assert_raises(StopIteration) { session.lead(@name, "me") { [].each.next } }
    assert_equal 5, session.lead(@name, "me") { break 5 }
  end

  def test_close_ends_a_campaign
    first = connect
    second = connect
    term = first.campaign(@name, "1", wait: 5)
    waiter = waiting { second.lead(@name, "2") { flunk } }
    second.close
    assert_nil waiter.value
    assert term.resign
    assert_raises(LockElection::LockLost) { term.proclaim("late") }
  end

  def test_watch
    watch = connect.observe(@name)
    thread = Thread.new { watch.first(2) }
    connect.campaign(@name, "me") do
      assert_equal([nil, "me"], thread.value.map { |leader| leader&.value })
    end
    watch.close
    assert_operator watch.to_a.size, :<=, 2
  end
end
