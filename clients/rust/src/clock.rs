//! The clock of all deadlines. It runs while the machine is suspended, like the leases on the server.

use std::time::Duration;

/// A point in time, as the duration since a fixed moment; zero = long ago.
pub(crate) type Time = Duration;

#[cfg(target_os = "linux")]
pub(crate) fn now() -> Time {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the larger of the times by which the monotonic clock and the wall clock have advanced, because only the wall
/// clock runs while the machine is suspended. If the wall clock is set forward, locks are lost early, which is safe.
#[cfg(not(target_os = "linux"))]
pub(crate) fn now() -> Time {
    use std::sync::LazyLock;
    use std::time::{Instant, SystemTime};
    static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));
    let (instant, wall) = *START;
    instant.elapsed().max(wall.elapsed().unwrap_or_default()) + Duration::from_secs(1)
}

/// Returns the duration, changed at random by up to 10 %, so that clients do not act at the same time.
pub(crate) fn jitter(duration: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let tenths = u32::try_from(RandomState::new().hash_one(0) % 2001).unwrap_or(0);
    duration * (9000 + tenths) / 10_000
}

/// Returns 16 random hexadecimal digits.
pub(crate) fn random_digits() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:016x}", RandomState::new().hash_one(0))
}
