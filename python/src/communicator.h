// A communicator as Python holds it: the handle, and how to call.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "array.h"
#include "call.h"
#include "hccl/hccl_comm.h"

namespace hccl::python {

/// The arguments are Python's: errors name them as hccl/communicator.py does.
class Communicator {
 public:
  /// The owner that ends the communicator: its holder; the holder, together with the world and all
  /// groups; the group's owner.
  enum class Kind { kOwn, kWorld, kGroup };

  static Communicator* from_root_info(const nb::bytes& info, std::uint32_t size,
                                      std::uint32_t rank);
  static Communicator* from_rank_table(const std::string& path, std::uint32_t rank);
  static Communicator* join_by_launcher();
  static Communicator* join_by_rank_table(const std::string& path, std::uint32_t rank);
  static Communicator* from_group(const std::string& group);

  Communicator(HcclComm handle, Kind kind);
  /// Never raises and hardly waits: a program that wants to leave in good order calls destroy().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void all_reduce(nb::handle array, const std::string& op, nb::handle out);
  void broadcast(nb::handle array, std::uint32_t root);
  void all_gather(nb::handle array, nb::handle out);
  void reduce_scatter(nb::handle array, const std::string& op, nb::handle out);
  void reduce(nb::handle array, const std::string& op, std::uint32_t root, nb::handle out);
  void scatter(nb::handle array, std::uint32_t root, nb::handle out);
  void all_to_all(nb::handle array, nb::handle out);
  void send(nb::handle array, std::uint32_t dest);
  void recv(nb::handle array, std::uint32_t src);
  void barrier();
  /// A second call does nothing. After an interrupted call the library's part is left as it is.
  void destroy();

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  const std::string& name() const { return name_; }
  bool interrupted() const { return calls_.interrupted(); }
  bool usable() const { return handle_ != nullptr && !interrupted(); }

  /// Raises HcclError if destroyed or interrupted.
  HcclComm handle() const;
  BlockingCalls& calls() { return calls_; }

 private:
  static Communicator* world(LibraryCall join);
  Array block(nb::handle out, const Array& like, const char* argument, std::uint64_t count) const;

  BlockingCalls calls_;
  HcclComm handle_;
  Kind kind_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  std::string name_;
};

/// "sum", "prod", "max" or "min"; ValueError otherwise.
HcclReduceOp reduce_op(const std::string& name);

void bind_communicator(nb::module_& module);
void bind_fusion(nb::module_& module);
void bind_groups(nb::module_& module);

}  // namespace hccl::python
