//! Log-linear histograms: powers of two with eight steps each.

use super::lock::Ns;
use serde::Serialize;

const STEPS: u64 = 8;

/// How often values of each size came. Takes 4 KiB at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u128,
    max: Ns,
}

/// What a histogram says in a few numbers, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// Half of them are not above this.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// 9999 of 10000.
    pub p9999_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// Lowest value of each bucket that has any, and how many.
    pub buckets: Vec<(u64, u64)>,
}

fn bucket(value: Ns) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = 63 - u64::from(value.leading_zeros());
    ((power - 2) * STEPS + (value >> (power - 3)) - STEPS) as usize
}

/// The lowest value of a bucket.
fn lowest(bucket: usize) -> Ns {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    if power == 0 { step } else { (STEPS + step) << (power - 1) }
}

impl Histogram {
    /// One value more.
    pub fn add(&mut self, value: Ns) {
        let bucket = bucket(value);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    /// The values of another as well.
    pub fn merge(&mut self, other: &Histogram) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, more)| *own += more);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The same with the values that were missed: where requests were to come every `interval`, one that took longer
    /// kept those behind it from coming, which would have taken an interval less each.
    ///
    /// A value counts as the lowest of its bucket here, and so do those that are added.
    pub fn corrected(&self, interval: Ns) -> Histogram {
        let mut corrected = self.clone();
        if interval == 0 {
            return corrected;
        }
        for (number, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let value = lowest(number).min(self.max);
            // Whole buckets at once: a stall of an hour may have kept millions of requests away.
            let mut end = value.saturating_sub(interval);
            while end >= interval {
                let low = lowest(bucket(end)).max(interval);
                let missed = (end - low) / interval + 1;
                corrected.add_many(end - (missed - 1) * interval, missed * count);
                end = (end - (missed - 1) * interval).saturating_sub(interval);
            }
        }
        corrected
    }

    fn add_many(&mut self, value: Ns, count: u64) {
        if count > 0 {
            self.add(value);
            self.buckets[bucket(value)] += count - 1;
            self.count += count - 1;
            self.sum += u128::from(value) * u128::from(count - 1);
        }
    }

    /// Values so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All values together.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// The largest value.
    pub fn max(&self) -> Ns {
        self.max
    }

    /// The lowest value of the bucket below which a share of the values lies, in 1/10000; 0 where there are none.
    pub fn quantile(&self, share: u64) -> Ns {
        let wanted = (u128::from(self.count) * u128::from(share)).div_ceil(10_000).max(1) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return lowest(bucket);
            }
        }
        0
    }

    /// The same in a few numbers.
    pub fn summary(&self) -> Summary {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        Summary {
            count: self.count,
            mean_ns: (self.sum / u128::from(self.count.max(1))) as u64,
            p50_ns: self.quantile(5000),
            p99_ns: self.quantile(9900),
            p999_ns: self.quantile(9990),
            p9999_ns: self.quantile(9999),
            max_ns: self.max,
            buckets: filled.map(|(bucket, count)| (lowest(bucket), *count)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_order_and_narrow() {
        for value in (0..2000).chain([1 << 20, (1 << 20) + 1, u64::MAX >> 1, u64::MAX]) {
            let low = lowest(bucket(value));
            assert!(low <= value && value - low <= low / STEPS, "{value} {low}");
        }
        assert!((0..480).all(|bucket| lowest(bucket) < lowest(bucket + 1)));
    }

    #[test]
    fn what_was_missed_is_added() {
        let mut histogram = Histogram::default();
        (0..99).for_each(|_| histogram.add(128));
        histogram.add(1024);
        // 896, 768, ... 128: seven requests did not come.
        let corrected = histogram.corrected(128);
        assert_eq!((corrected.count(), corrected.max()), (107, 1024));
        assert!(corrected.quantile(9900) > histogram.quantile(9900));
        assert_eq!(histogram.corrected(2000), histogram);
        let mut long = Histogram::default();
        long.add(1 << 50);
        let corrected = long.corrected(1000);
        let expected = (1u64 << 50) / 1000;
        assert!(corrected.count().abs_diff(expected) <= 1 && corrected.quantile(5000) >= 1 << 48);
        let mut sum = histogram.clone();
        sum.merge(&long);
        assert_eq!((sum.count(), sum.max(), sum.summary().buckets.len()), (101, 1 << 50, 3));
    }

    #[test]
    fn quantiles() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(5000), 0);
        (1..=1000).for_each(|value| histogram.add(value));
        let summary = histogram.summary();
        assert_eq!((summary.count, summary.mean_ns, summary.max_ns), (1000, 500, 1000));
        assert!((448..=500).contains(&summary.p50_ns) && (960..=990).contains(&summary.p99_ns));
        assert_eq!(summary.buckets.iter().map(|(_, count)| count).sum::<u64>(), 1000);
    }
}
