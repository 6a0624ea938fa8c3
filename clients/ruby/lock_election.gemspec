# frozen_string_literal: true

require_relative "lib/lock_election/version"

Gem::Specification.new do |spec|
  spec.name = "lock_election"
  spec.version = LockElection::VERSION
  spec.summary = "Distributed locks and leader election inside PostgreSQL"
  spec.authors = ["lock_election contributors"]
  spec.license = "PostgreSQL"
  spec.required_ruby_version = ">= 3.1"
  spec.files = Dir.chdir(__dir__) { Dir["lib/**/*.{rb,sql}", "README.md", "LICENSE"] }
  spec.add_dependency "pg", ">= 1.3"
  spec.metadata["rubygems_mfa_required"] = "true"
end
