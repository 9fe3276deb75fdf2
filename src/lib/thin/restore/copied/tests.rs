//! How leaves of damaged trees are divided; whole copies are tested with repairs.

use super::{Segment, segments};

/// Segments as text: `c` for each leaf that is copied, brackets around those that are merged.
fn divided(sizes: &[u64]) -> String {
    let mut text = String::new();
    let mut at = 0;
    for Segment { begin, end, merge } in segments(sizes) {
        assert_eq!(begin, at);
        at = end;
        let leaves = "c".repeat(end - begin);
        text += &if merge { format!("[{leaves}]") } else { leaves };
    }
    assert_eq!(at, sizes.len());
    text
}

#[test]
fn small_leaves_join_a_neighbour() {
    assert_eq!(divided(&[]), "");
    assert_eq!(divided(&[3]), "c");
    assert_eq!(divided(&[252, 84, 126]), "ccc");
    assert_eq!(divided(&[83, 126, 126]), "[cc]c");
    assert_eq!(divided(&[126, 1, 126, 126]), "c[cc]c");
    assert_eq!(divided(&[126, 126, 83]), "c[cc]");
    assert_eq!(divided(&[126, 83]), "[cc]");
    assert_eq!(divided(&[1, 2]), "[cc]");
    assert_eq!(divided(&[40, 44, 126]), "[cc]c");
    assert_eq!(divided(&[1, 2, 3, 200, 5]), "[ccccc]");
    assert_eq!(divided(&[1, 100, 2, 100, 100, 3]), "[cc][cc][cc]");
}
