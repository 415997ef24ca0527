// The symbolic memory of one rank. For every chunk and slot it holds the set of ranks that
// contributed. The checker runs schedules on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hccl/schedule/schedule.h"

namespace hccl::schedule {

/// The parameters of a check, the same for all ranks.
struct Setting {
  Op op = Op::kAllReduce;
  int size = 1;
  int root = 0;
  int chunks = 0;
  bool in_place = false;

  /// The block, and so the rank, to which a chunk belongs in operations that cut the vector into
  /// blocks.
  int block_of(int chunk) const { return chunk / (chunks / size); }
  /// Whether `buffer` of `rank` contains `chunk`; see the table in schedule.h.
  bool holds(int rank, Buffer buffer, int chunk) const;
};

std::string describe(const Slice& slice);

/// A set of ranks, one bit each.
using RankSet = std::vector<std::uint64_t>;
bool contains(const RankSet& set, int rank);
void insert(RankSet& set, int rank);

/// The contents of a chunk: the ranks that contributed, the chunk of their vectors that they
/// contributed, and a number for the order in which contributions were combined.
struct Value {
  RankSet ranks;
  /// Equal numbers mean that contributions were combined in the same order: the bits are equal.
  std::uint64_t order = 0;
  int chunk = -1;  ///< -1: never written
};

/// The text that a function returns is the error ("reads kScratch slot 2, which …"), or empty on
/// success.
class Memory {
 public:
  /// `setting` must outlive the memory.
  Memory(const Setting& setting, int rank, int scratch_slots);

  /// Checks that the whole slice exists. The other functions expect slices that exist.
  std::string inside(const Slice& slice) const;
  std::string may_write(const Slice& slice) const;
  /// The cell of chunk number `index` of the slice. In place, a chunk of kIn and the same chunk of
  /// kOut share a cell.
  std::size_t place(const Slice& slice, int index) const;
  std::size_t places() const { return chunk_.size(); }

  std::string read(const Slice& slice, int index, Value& value) const;
  void write(const Slice& slice, int index, const Value& value);
  /// value = inputs folded left to right; a single input is copied.
  std::string fold(const std::vector<Value>& inputs, Value& value) const;

  /// Compares kOut with the operation's result.
  std::string result() const;
  /// A number for the order in which chunk `chunk` of kOut was combined; 0 if this rank does not
  /// hold that chunk.
  std::uint64_t order_of_result(int chunk) const;

 private:
  void set_initial(Buffer buffer, int chunk);
  std::string compare(int chunk, const Value& found) const;
  void load(std::size_t place, Value& value) const;

  const Setting& setting_;
  int rank_;
  int scratch_slots_;
  std::size_t words_;                 // 64-bit numbers in a RankSet
  std::vector<std::uint64_t> ranks_;  // places() sets, one after the other
  std::vector<std::uint64_t> order_;
  std::vector<int> chunk_;
  std::vector<bool> input_lost_;  // in place: chunks of kIn that kOut has overwritten
};

}  // namespace hccl::schedule
