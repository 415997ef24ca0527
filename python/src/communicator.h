// Makes the library's communicators available to Python.
#pragma once

#include <nanobind/nanobind.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "call.h"
#include "hccl/hccl_comm.h"
#include "hccl/hccl_framework.h"

namespace hccl::python {

using Counts = std::vector<std::uint64_t>;

/// A communicator: the library's handle and the calls that use it. Arguments come from Python;
/// errors use the argument names of hccl/communicator.py.
class Communicator {
 public:
  /// Which object ends the library's communicator. kHandle: this object. kWorld: this object, with
  /// the world and all groups. kGroup: no object, because the program ends the group.
  enum class Lifetime { kHandle, kWorld, kGroup };

  static Communicator* from_root_info(const nb::bytes& info, std::uint32_t size,
                                      std::uint32_t rank);
  static Communicator* from_rank_table(const std::string& path, std::uint32_t rank);
  static Communicator* join_by_launcher();
  static Communicator* join_by_rank_table(const std::string& path, std::uint32_t rank);
  static Communicator* from_group(const std::string& group);
  /// Makes a communicator of these ranks of this world. This rank is ranks[sub_rank].
  Communicator* sub(std::vector<std::uint32_t> ranks, std::uint32_t sub_rank, std::uint64_t id);
  /// Makes the next group of these ranks of this world; `timeout` is in milliseconds.
  Communicator* next_group(std::vector<std::uint32_t> ranks, const std::string& name,
                           std::uint64_t timeout);
  /// Makes a communicator of the living ranks that are not excluded.
  Communicator* shrink(std::vector<std::uint32_t> excluded);

  Communicator(HcclComm handle, Lifetime lifetime);
  /// Never raises. Destroys only a communicator of kHandle without running calls. To leave a
  /// communicator cleanly, call destroy().
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// The operations. A blocking operation returns null when it is done, or when an open group has
  /// collected it. A non-blocking operation returns at once.
  using Begun = std::shared_ptr<PendingRequest>;
  Begun all_reduce(nb::handle array, const std::string& op, nb::handle out, double before,
                   double after, bool blocking);
  Begun reduce(nb::handle array, const std::string& op, std::uint32_t root, nb::handle out,
               double before, double after, bool blocking);
  Begun reduce_scatter(nb::handle array, const std::string& op, nb::handle out, double before,
                       double after, bool blocking);
  Begun broadcast(nb::handle array, std::uint32_t root, bool blocking);
  Begun all_gather(nb::handle array, nb::handle out, bool blocking);
  Begun scatter(nb::handle array, std::uint32_t root, nb::handle out, bool blocking);
  Begun all_to_all(nb::handle array, nb::handle out, bool blocking);
  void check_sent(nb::handle array, const Counts& send_counts, nb::handle out) const;
  Begun all_to_all_v(nb::handle array, Counts send_counts, Counts recv_counts, nb::handle out,
                     bool blocking);
  Begun barrier(bool blocking);

  /// Messages run at once, also in a group.
  Begun send(nb::handle array, std::uint32_t dest, std::int32_t tag);
  Begun recv(nb::handle array, std::uint32_t src, std::int32_t tag);

  /// From begin_group() on, blocking operations are collected. end_group() runs them together;
  /// drop_group() drops them.
  void begin_group();
  void drop_group();
  Begun end_group(bool blocking);

  /// Ends the communicator on all ranks. May be called from any thread.
  void abort(const std::string& reason);
  /// Reports to the other ranks, in the next collective, why this rank does not call it.
  void report_refusal(const std::string& reason);
  /// The limit in milliseconds; 0 means no limit.
  std::uint64_t timeout() const;
  void set_timeout(std::uint64_t milliseconds);
  /// Later collectives get this tag (HcclSetCallTag), which the ranks compare; 0 means none.
  void set_tag(std::uint32_t tag) { tag_ = tag; }
  /// Leaves. A second call does nothing. If an interrupted call still runs, the library's
  /// communicator is not destroyed.
  void destroy();

  std::uint32_t rank() const { return rank_; }
  std::uint32_t size() const { return size_; }
  const std::string& name() const { return name_; }
  bool interrupted() const { return calls_.interrupted(); }
  bool usable() const { return handle_ != nullptr && !interrupted(); }
  bool in_group() const { return group_.has_value(); }
  /// Returns whether some operation or message has begun and not ended.
  bool under_way() { return calls_.under_way(); }

  /// Returns the handle. Raises HcclError if the communicator was destroyed, was interrupted, or
  /// was made by the parent process.
  HcclComm handle() const;
  BlockingCalls& calls() { return calls_; }

 private:
  static Communicator* world(LibraryCall join);
  Array block(nb::handle out, const Array& like, std::uint64_t count) const;
  Begun launch(LibraryCall call, const Owners& owners, bool blocking);

  struct Group {
    std::vector<LibraryCall> calls;
    Owners owners;
  };

  BlockingCalls calls_;
  HcclComm handle_;
  Lifetime lifetime_;
  pid_t process_;
  std::optional<Group> group_;
  std::uint32_t rank_ = 0;
  std::uint32_t size_ = 0;
  std::uint32_t tag_ = 0;
  std::string name_;
};

/// Returns the reduction with this name. ValueError: there is no such reduction, or the array is of
/// bools and the reduction does not apply to bools.
HcclReduceOp reduce_op(const std::string& name, const Array& array);

void bind_pending(nb::module_& module);
void bind_memory(nb::module_& module);
void bind_communicator(nb::module_& module);
void bind_collectives(nb::class_<Communicator>& type);
void bind_messages(nb::class_<Communicator>& type);
void bind_fusion(nb::module_& module);
void bind_groups(nb::module_& module);

}  // namespace hccl::python
