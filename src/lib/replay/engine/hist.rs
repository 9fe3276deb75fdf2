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

    /// Values so far.
    pub fn count(&self) -> u64 {
        self.count
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
