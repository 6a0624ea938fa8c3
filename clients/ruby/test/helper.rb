# frozen_string_literal: true

# PGHOST and the like name a server with lock_election.
require "minitest/autorun"
require "open3"
require "timeout"
require "lock_election"

class ServerTest < Minitest::Test
  TTL = 3

  def setup
    @name = "#{self.class}-#{name}-#{Process.pid}"
    @cleanup = []
  end

  def teardown = @cleanup.reverse_each(&:call)

  def connect(**options)
    LockElection.connect("", ttl: TTL, **options).tap { |session| @cleanup << -> { session.close(limit: 1) } }
  end

  def db
    @db ||= PG.connect.tap do |connection|
      connection.set_notice_processor { |_| nil }
      @cleanup << -> { connection.close }
    end
  end

  # A thread that waits, and has its place.
  def waiting(name = @name, &block)
    before = waiters(name)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      block.call
    end
    wait_until { waiters(name) > before }
    thread
  end

  def waiters(name = @name) = count("waiters", name)

  def locks(name = @name) = count("locks", name)

  def count(view, name)
    db.exec_params("SELECT count(*) FROM lock_election.#{view} WHERE name = $1", [name]).getvalue(0, 0).to_i
  end

  def wait_until(limit = 20)
    till = Process.clock_gettime(Process::CLOCK_MONOTONIC) + limit
    until yield
      flunk("not in time") if Process.clock_gettime(Process::CLOCK_MONOTONIC) > till
      sleep(0.01)
    end
  end

  # Runs a program of Ruby with this library, and returns what it has written to both outputs, and its status.
  def run_ruby(*arguments)
    library = File.expand_path("../lib", __dir__)
    Open3.capture2e(RbConfig.ruby, "-w", "-I#{library}", *arguments)
  end
end
