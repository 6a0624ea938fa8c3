# frozen_string_literal: true

require_relative "helper"

class ArgumentsTest < ServerTest
  def refused(expected, &block)
    error = assert_raises(LockElection::InvalidRequest, &block)
    assert_match(expected, error.message)
  end

  def test_arguments
    session = connect
    refused(/wait is -1: /) { session.lock("a", wait: -1) }
    refused(/wait is "5": it must be a number of seconds, 0 or more/) { session.lock("a", wait: "5") }
    refused(/ttl is 0: /) { session.lock("a", ttl: 0) }
    refused(/names is \[\]: /) { session.lock }
    refused(/name is "": it must be not empty/) { session.lock("") }
    refused(/name is nil: it must be a String/) { session.lock(nil) }
    refused(/without a NUL/) { session.lock("a\0b") }
    refused(/UTF-8/) { session.lock("\xff") }
    refused(/permits is 0: /) { session.permit("a", 0) }
    refused(/on_lost is 5: /) { session.lock("a", on_lost: 5) }
    refused(/hold_for is -1: /) { session.once("a", hold_for: -1) { flunk } }
    refused(/hold_for is nil: /) { session.lock(@name).release(hold_for: nil) }
    assert_equal 0, locks
    assert_equal(1, session.lock(:"#{@name}".to_sym, wait: Rational(1, 2)) { 1 })
    session.lock("#{@name} äöü ✓".encode("UTF-16LE")) { |hold| assert_equal ["#{@name} äöü ✓"], hold.names }
  end

  def test_connection_strings
    ["postgres://u:S3cr3t%ZZ@h/db", "postgres://u:a@S3cr3t@h/db", "host=h password=my S3cr3t", "port=S3cr3t",
     "host=h connect_timeout=S3cr3t", "S3cr3t\0", "pasword=S3cr3t"].each do |conninfo|
      error = assert_raises(LockElection::InvalidRequest, conninfo) { LockElection.connect(conninfo) }
      refute_includes error.full_message, "S3cr3t"
      assert_nil error.cause
    end
    refused(/conninfo is of class Integer/) { LockElection.connect(5) }
    refused(/ttl is 0: /) { LockElection.connect("", ttl: 0) }
  end

  # Where no clock counts a suspend, the wall clock does.
  def test_clock
    clock = LockElection.module_eval("Clock", __FILE__, __LINE__) # which is private
    start = clock.larger(100.0, 1000.0)
    assert_in_delta 1.0, clock.larger(101.0, 1001.0) - start, 0.01
    assert_in_delta 62.0, clock.larger(102.0, 1062.0) - start, 0.01
    assert_in_delta 63.0, clock.larger(103.0, 63.0) - start, 0.01, "the wall clock is set back"
    assert_in_delta clock.now, clock.now, 0.5
  end
end
