//! What all boards know of each node, node by node.
//!
//! A board that is used again looks at the nodes which changed in the meantime, and so does the next board: what boards
//! know of a node therefore lies side by side. By board, every look would be at memory that nobody was at for long.

use crate::cluster::NodeId;

/// Stands for the score of a node that does not fit; scores are never below 0.
pub(super) const UNFIT: i32 = -1;

/// What a board knows of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// One more than the level; 0 when the node lies nowhere.
    pub(super) level: u32,
    /// Another one after every move.
    pub(super) stamp: u32,
    /// The sum of the scores that are not normalised; kept while the node is hidden.
    pub(super) score: i32,
    /// The part of the score that only changes with the node; unfit when the node is out of the question.
    pub(super) base: i32,
}

const NOWHERE: Place = Place { level: 0, stamp: 0, score: UNFIT, base: UNFIT };

/// The places of a cache line.
const LINE: usize = 64 / size_of::<Place>();

/// A row for each node, a column for each board.
#[derive(Debug, Default)]
pub(super) struct Places {
    cells: Vec<Place>,
    rows: usize,
    /// The columns there is room for.
    width: usize,
    free: Vec<usize>,
}

/// What one board knows of the nodes.
pub(super) struct Column<'a> {
    cells: &'a mut [Place],
    width: usize,
    at: usize,
}

impl Places {
    /// Makes room for nodes.
    pub(super) fn reserve(&mut self, nodes: usize) {
        if self.rows < nodes {
            self.rows = nodes;
            self.cells.resize(nodes * self.width, NOWHERE);
        }
    }

    /// A column of nothing.
    pub(super) fn add(&mut self) -> usize {
        if self.free.is_empty() {
            let width = wider(self.width);
            let mut cells = vec![NOWHERE; self.rows * width];
            for (row, former) in cells.chunks_exact_mut(width).zip(self.cells.chunks_exact(self.width.max(1))) {
                row[..former.len()].copy_from_slice(former);
            }
            self.free.extend((self.width..width).rev());
            (self.cells, self.width) = (cells, width);
        }
        self.free.pop().expect("there is a free column")
    }

    /// Gives a column back.
    pub(super) fn remove(&mut self, column: usize) {
        self.cells.iter_mut().skip(column).step_by(self.width).for_each(|place| *place = NOWHERE);
        self.free.push(column);
    }

    /// A column.
    pub(super) fn column(&mut self, at: usize) -> Column<'_> {
        Column { cells: &mut self.cells, width: self.width, at }
    }
}

/// The next larger width. A lone board lies densely; many take an odd number of lines a row, lest the rows of one column
/// compete for the same few lines of the cache.
fn wider(width: usize) -> usize {
    match width {
        0 => 1,
        1 => LINE,
        width => (width / LINE + width / LINE / 4 * 2 + 2) * LINE,
    }
}

impl Column<'_> {
    /// What is known of a node.
    pub(super) fn get(&self, node: NodeId) -> &Place {
        &self.cells[node.0 as usize * self.width + self.at]
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, node: NodeId) -> &mut Place {
        &mut self.cells[node.0 as usize * self.width + self.at]
    }

    /// The score of a node that fits, whether it is hidden or not.
    pub(super) fn score(&self, node: NodeId) -> Option<i32> {
        Some(self.get(node).score).filter(|score| *score != UNFIT)
    }

    /// The part of a node's score that only changes with the node; none when the node is out of the question.
    pub(super) fn base(&self, node: NodeId) -> Option<i32> {
        Some(self.get(node).base).filter(|base| *base != UNFIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_what_is_theirs_while_others_come_and_go() {
        let mut places = Places::default();
        let mut columns = Vec::new();
        for board in 0..60i32 {
            places.reserve(3 + board as usize / 10);
            let column = places.add();
            for node in 0..3 {
                assert_eq!(*places.column(column).get(NodeId(node)), NOWHERE);
                places.column(column).get_mut(NodeId(node)).score = 10 * board + node as i32;
            }
            columns.push((column, board));
            if board % 3 == 2 {
                let (gone, _) = columns.remove(board as usize / 3);
                places.remove(gone);
            }
            for (column, board) in &columns {
                for node in 0..3 {
                    assert_eq!(places.column(*column).score(NodeId(node)), Some(10 * board + node as i32));
                }
            }
        }
        assert!(columns.iter().all(|(column, _)| *column < 60));
    }

    #[test]
    fn rows_of_many_boards_are_an_odd_number_of_lines() {
        let widths: Vec<usize> = std::iter::successors(Some(0), |width| Some(wider(*width))).take(12).collect();
        assert!(widths.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(
            widths[2..].iter().all(|width| width.is_multiple_of(LINE) && !(width / LINE).is_multiple_of(2)),
            "{widths:?}"
        );
    }
}
