# frozen_string_literal: true

require_relative "helper"

# The examples of README.md, and of the project's quick starts, run as they stand there.
class ReadmeTest < ServerTest
  README = File.expand_path("../README.md", __dir__)
  QUICK_START = File.expand_path("../../../docs/quick-start.md", __dir__)
  TEXTS = [README, QUICK_START].map { |file| File.read(file, encoding: "UTF-8") }
  BLOCKS = TEXTS.flat_map { |text| text.scan(/^```ruby\n(.*?)^```$/m).flatten }

  BLOCKS.each_with_index do |block, i|
    define_method("test_example_#{i}") do
      skip("there is no ActiveRecord") if block.include?("active_record") && !active_record?
      out, status = run_ruby("-e", block)
      assert_predicate status, :success?, "#{block}\n#{out}"
      refute_match(/^-e:.*warning/, out)
    end
  end

  def active_record?
    require "active_record"
  rescue LoadError
    false
  else
    true
  end

  def test_there_are_examples = assert_operator(BLOCKS.size, :>=, 6)

  def test_links
    File.read(README, encoding: "UTF-8").scan(%r{\]\(([\w/.-]+)(?:#[\w-]+)?\)}).flatten.each do |link|
      assert_path_exists File.expand_path(link, File.dirname(README))
    end
  end

  # What the gem has in it; the file of the portable edition is a link here.
  def test_package
    spec = Gem::Specification.load(File.expand_path("../lock_election.gemspec", __dir__))
    assert_equal LockElection::VERSION, spec.version.to_s
    assert_includes spec.files, "lib/lock_election/lock_election.sql"
    assert_includes spec.files, "lib/lock_election/engine.rb"
    assert_includes spec.files, "LICENSE"
  end
end
