// A list of gradients that is reduced once in each step, in segments, while backward makes more
// gradients.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "hccl/hccl_fusion.h"
#include "kernel.h"
#include "memory.h"

namespace hccl::tf {

/// One fusion object with a communicator of its own, so that the list and the collectives of
/// forward and backward never wait for each other. Index 0 is the gradient that backward makes
/// first.
///
/// In each step, push() copies gradients into the list's memory and passes them to the fusion
/// object, on any threads and in any order. reduce() has all gradients as inputs. It copies the
/// gradients that no push has copied, waits, and copies the results out. The first reduce() makes
/// the fusion object, because making a communicator is collective, and only reduce() has the same
/// position in the program's order on all ranks. So pushes of the first step do nothing.
class FusedList {
 public:
  struct Options {
    std::vector<std::string> names;
    bool average = false;
    bool hcom_parallel = true;
  };

  /// Returns the list with this key. The first op with the key makes the list. The list is never
  /// destroyed, because TensorFlow may run ops until the process ends.
  static FusedList& of(const std::string& key);
  /// Ends all lists that are not in use. Called before the world ends.
  static void forget_all();
  /// Writes the traces of all lists: PREFIX<number>.pb, and PREFIX<number>.json in Chrome's form.
  static Status write_traces(const std::string& prefix);

  /// Copies a gradient and passes it on. Returns the number of the current step, or 0 if the
  /// gradient was not passed on.
  std::int64_t push(std::uint32_t index, const Tensor& gradient);

  /// Reduces the list. The context's first inputs are the gradients; the others are the results of
  /// the pushes.
  Status reduce(OpKernelContext* context, HcclComm world, const Options& options);

 private:
  enum class State : std::uint8_t { kEmpty, kCopying, kCopied };
  struct Gradient {
    char* data = nullptr;
    std::size_t bytes = 0;
    State state = State::kEmpty;
    std::int64_t step = 0;  // the step of the last push
  };

  Status open(OpKernelContext* context, HcclComm world, const Options& options);
  Status open_communicator(HcclComm world);
  Status collect(OpKernelContext* context);
  Status wait(OpKernelContext* context);
  Status hand_over();
  void forget();

  std::mutex mutex_;
  std::condition_variable copied_;
  // Not guarded: reduce() uses these members, and push() accepts no gradient while reduce() runs.
  HcclFusion fusion_ = nullptr;
  HcclComm comm_ = nullptr;
  std::uint64_t number_ = 0;  // the same on all ranks, which open lists in the program's order
  Buffer memory_;
  // Guarded.
  std::vector<Gradient> gradients_;  // none before the first step
  bool reducing_ = false;
  std::int64_t step_ = 1;
  std::uint32_t next_ = 0;  // gradients before this index belong to the fusion object
};

}  // namespace hccl::tf
