// For every check of an operation's arguments: a wrong call, and the right call of the same
// function.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "hccl/hccl.h"
#include "hccl/hccl_framework.h"
#include "tests/support/load.h"

namespace hccl::testing {

/// The arguments of an operation of two ranks. A function ignores arguments that it does not take.
struct Arguments {
  static constexpr std::uint64_t kCount = 2;
  float from[16] = {}, to[16] = {};
  std::uint64_t number[2] = {kCount, kCount}, other_number[2] = {kCount, kCount},
                at[2] = {0, kCount}, other_at[2] = {0, kCount},
                matrix[4] = {kCount, kCount, kCount, kCount};
  HcclSendRecvItem items[2] = {};
  HcclScale factors = {1, 1};

  HcclComm comm = nullptr;
  std::uint32_t rank = 0, peer = 1, root = 0, item_number = 2;
  void* send = from;
  void* recv = to;
  std::uint64_t count = kCount, recv_count = kCount;
  HcclDataType type = HCCL_DATA_TYPE_FP32, recv_type = HCCL_DATA_TYPE_FP32;
  HcclReduceOp op = HCCL_REDUCE_SUM;
  std::uint64_t *counts = number, *recv_counts = other_number, *displs = at,
                *recv_displs = other_at;
  std::uint64_t* square = matrix;
  HcclSendRecvItem* batch = items;
  const HcclScale* scale = &factors;
  aclrtStream stream = nullptr;
  const char *tag = "step", *group = nullptr;  // for functions of hcom.h

  Arguments(HcclComm on, int me)
      : comm(on), rank(static_cast<std::uint32_t>(me)), peer(1 - static_cast<std::uint32_t>(me)) {
    items[0] = {HCCL_SEND, from, kCount, HCCL_DATA_TYPE_FP32, peer};
    items[1] = {HCCL_RECV, to, kCount, HCCL_DATA_TYPE_FP32, peer};
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
};

using Function = HcclResult (*)(Arguments&);
using Change = void (*)(Arguments&);

struct Wrong {
  Change change;
  const char* words;  /// a part of the error text
};

/// One function and all its wrong calls. `called` is the call of the waiting rank, as the error
/// text names it. `right` is the waiting rank's call, if that rank calls another function.
struct Refusals {
  const char* name;
  const char* called;
  Function call;
  std::vector<Wrong> wrong;
  Function right = nullptr;
};

/// Makes the wrong call on rank 1.
inline void expect_refused(const Refusals& function, const Wrong& wrong, Arguments& arguments) {
  wrong.change(arguments);
  EXPECT_NE(function.call(arguments), HCCL_SUCCESS);
  const std::string text = HcclGetLastErrorText();
  EXPECT_NE(text.find(wrong.words), std::string::npos) << text;
}

/// The promise is 1.8 s: rank 1 may still make the right call for one second; the error takes the
/// rest.
constexpr std::chrono::milliseconds kTold{1800};

/// Makes the right call on rank 0, which fails because of rank 1's call.
inline void expect_told(const Refusals& function, const Wrong& wrong, Arguments& arguments) {
  const Load load;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ((function.right == nullptr ? function.call : function.right)(arguments), HCCL_E_PARA);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, load.allows(kTold));
  const std::string text = HcclGetLastErrorText();
  for (const std::string& words :
       {std::string("rank 0 called ") + function.called,
        std::string("rank 1 was refused: ") + function.name, std::string(wrong.words)}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
  }
}

namespace wrongs {
constexpr std::uint64_t kTooMany = std::uint64_t{1} << 31;
constexpr auto kUnknownType = static_cast<HcclDataType>(77);
constexpr auto kUnknownOp = static_cast<HcclReduceOp>(99);
constexpr std::uint64_t kBeyond = std::numeric_limits<std::uint64_t>::max() / 8;

inline int no_stream;  // its address is no stream's handle
inline const Wrong kStream{[](Arguments& a) { a.stream = &no_stream; }, "stream"};
inline const Wrong kType{[](Arguments& a) { a.type = a.recv_type = kUnknownType; },
                         "77 is unknown"};
inline const Wrong kOp{[](Arguments& a) { a.op = kUnknownOp; }, "op 99 is unknown"};
inline const Wrong kIrreducible{[](Arguments& a) { a.type = HCCL_DATA_TYPE_HIF8; },
                                "cannot be reduced"};
inline const Wrong kRoot{[](Arguments& a) { a.root = 2; },
                         "root is 2, the communicator has 2 ranks"};

inline Wrong null_send(const char* words) {
  return {[](Arguments& a) { a.send = nullptr; }, words};
}
inline Wrong null_recv(const char* words) {
  return {[](Arguments& a) { a.recv = nullptr; }, words};
}
// The buffers or blocks overlap by all but one element.
inline const Wrong kOverlap{[](Arguments& a) { a.recv = a.from + 1; }, "overlaps"};
inline const Wrong kInside{[](Arguments& a) { a.send = a.to + 1; }, "overlaps"};
inline const Wrong kBlocksMeet{[](Arguments& a) { a.other_at[1] = 1; }, "overlaps recvBuf, block"};

inline Wrong count(const char* words) {
  return {[](Arguments& a) { a.count = a.recv_count = kTooMany; }, words};
}
}  // namespace wrongs

inline std::vector<Refusals> collectives() {
  using namespace wrongs;
  using A = Arguments;
  const Wrong infinite{[](A& a) { a.factors.after = std::numeric_limits<double>::infinity(); },
                       "a factor is not finite"};
  const Wrong scaled_maximum{[](A& a) { a.factors.after = 2, a.op = HCCL_REDUCE_MAX; },
                             "only sums and averages"};
  const Wrong scaled_whole{[](A& a) { a.factors.after = 2, a.type = HCCL_DATA_TYPE_INT32; },
                           "only floats"};
  const std::vector<Wrong> reduction = {kType,
                                        kOp,
                                        kIrreducible,
                                        kStream,
                                        null_send("sendBuf is null"),
                                        null_recv("recvBuf is null")};
  const auto with = [](std::vector<Wrong> all, std::initializer_list<Wrong> more) {
    all.insert(all.end(), more);
    return all;
  };
  return {
      {"HcclAllReduce", "allreduce",
       [](A& a) { return HcclAllReduce(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream); },
       with(reduction, {count("count is 2147483648"), kOverlap})},
      {"HcclAllReduceScaled",
       "allreduce",
       [](A& a) {
         return HcclAllReduceScaled(a.send, a.recv, a.count, a.type, a.op, a.scale, a.comm,
                                    a.stream);
       },
       {infinite, scaled_maximum, scaled_whole}},
      {"HcclBroadcast",
       "broadcast",
       [](A& a) { return HcclBroadcast(a.send, a.count, a.type, a.root, a.comm, a.stream); },
       {null_send("buf is null"), count("count is"), kType, kRoot, kStream}},
      {"HcclReduceScatter", "reduce_scatter",
       [](A& a) {
         return HcclReduceScatter(a.send, a.recv, a.count, a.type, a.op, a.comm, a.stream);
       },
       with(reduction, {count("recvCount is"), kOverlap})},
      {"HcclReduceScatterScaled",
       "reduce_scatter",
       [](A& a) {
         return HcclReduceScatterScaled(a.send, a.recv, a.count, a.type, a.op, a.scale, a.comm,
                                        a.stream);
       },
       {infinite}},
      {"HcclAllGather",
       "allgather",
       [](A& a) { return HcclAllGather(a.send, a.recv, a.count, a.type, a.comm, a.stream); },
       {null_send("sendBuf is null"), null_recv("recvBuf is null"), count("sendCount is"), kType,
        kStream, kInside}},
      // The root is rank 1, which makes the wrong calls.
      {"HcclReduce", "reduce",
       [](A& a) {
         return HcclReduce(a.send, a.recv, a.count, a.type, a.op, 1 + a.root, a.comm, a.stream);
       },
       with(reduction, {count("count is"), {[](A& a) { a.root = 1; }, "root is 2"}, kOverlap})},
      {"HcclReduceScaled",
       "reduce",
       [](A& a) {
         return HcclReduceScaled(a.send, a.recv, a.count, a.type, a.op, a.scale, a.root, a.comm,
                                 a.stream);
       },
       {infinite}},
      {"HcclScatter",
       "scatter",
       [](A& a) {
         return HcclScatter(a.send, a.recv, a.count, a.type, 1 + a.root, a.comm, a.stream);
       },
       {null_send("sendBuf is null"),
        null_recv("recvBuf is null"),
        count("recvCount is"),
        kType,
        {[](A& a) { a.root = 1; }, "root is 2"},
        kStream,
        kOverlap}},
      {"HcclAlltoAll",
       "alltoall",
       [](A& a) {
         return HcclAlltoAll(a.send, a.count, a.type, a.recv, a.recv_count, a.recv_type, a.comm,
                             a.stream);
       },
       {null_send("sendBuf is null"),
        null_recv("recvBuf is null"),
        count("sendCount is"),
        kType,
        {[](A& a) { a.recv_type = HCCL_DATA_TYPE_INT8; }, "recvType differs"},
        {[](A& a) { a.recv_count = 1; }, "recvCount differs"},
        {[](A& a) { a.recv = a.send; }, "recvBuf is sendBuf"},
        kOverlap,
        kStream}},
      {"HcclReduceScatterV", "reduce_scatter_v",
       [](A& a) {
         return HcclReduceScatterV(a.send, a.counts, a.displs, a.recv, a.recv_count, a.type, a.op,
                                   a.comm, a.stream);
       },
       with(reduction, {count("recvCount is 2147483648"),
                        {[](A& a) { a.counts = nullptr; }, "sendCounts is null"},
                        {[](A& a) { a.displs = nullptr; }, "sendDispls is null"},
                        {[](A& a) { a.number[0] = kTooMany; }, "sendCounts[0] is 2147483648"},
                        {[](A& a) { a.at[0] = kBeyond; }, "beyond all memory"},
                        {[](A& a) { a.recv_count = 1; }, "of this rank, is 2"},
                        {[](A& a) { a.recv = a.send; }, "recvBuf is sendBuf"},
                        kOverlap})},
      {"HcclAllGatherV",
       "allgather_v",
       [](A& a) {
         return HcclAllGatherV(a.send, a.count, a.recv, a.recv_counts, a.recv_displs, a.type,
                               a.comm, a.stream);
       },
       {null_send("sendBuf is null"),
        null_recv("recvBuf is null"),
        count("sendCount is 2147483648"),
        kType,
        {[](A& a) { a.recv_counts = nullptr; }, "recvCounts is null"},
        {[](A& a) { a.recv_displs = nullptr; }, "recvDispls is null"},
        {[](A& a) { a.other_number[0] = kTooMany; }, "recvCounts[0] is 2147483648"},
        {[](A& a) { a.other_at[1] = kBeyond; }, "beyond all memory"},
        {[](A& a) { a.count = 1; }, "of this rank, is 2"},
        kInside,
        kBlocksMeet,
        kStream}},
      {"HcclAlltoAllV",
       "alltoall_v",
       [](A& a) {
         return HcclAlltoAllV(a.send, a.counts, a.displs, a.type, a.recv, a.recv_counts,
                              a.recv_displs, a.recv_type, a.comm, a.stream);
       },
       {null_send("sendBuf is null"),
        null_recv("recvBuf is null"),
        kType,
        {[](A& a) { a.counts = nullptr; }, "sendCounts is null"},
        {[](A& a) { a.displs = nullptr; }, "sdispls is null"},
        {[](A& a) { a.recv_counts = nullptr; }, "recvCounts is null"},
        {[](A& a) { a.recv_displs = nullptr; }, "rdispls is null"},
        {[](A& a) { a.number[0] = kTooMany; }, "sendCounts[0] is 2147483648"},
        {[](A& a) { a.other_number[1] = kTooMany; }, "recvCounts[1] is 2147483648"},
        {[](A& a) { a.at[1] = kBeyond; }, "beyond all memory"},
        {[](A& a) { a.other_at[1] = kBeyond; }, "beyond all memory"},
        {[](A& a) { a.number[1] = 1; }, "differs from the number that this rank sends to itself"},
        {[](A& a) { a.recv_type = HCCL_DATA_TYPE_INT8; }, "recvType differs"},
        {[](A& a) { a.recv = a.send; }, "recvBuf is sendBuf"},
        kOverlap,
        kBlocksMeet,
        kStream}},
      {"HcclAlltoAllVC",
       "alltoall_v",
       [](A& a) {
         return HcclAlltoAllVC(a.send, a.square, a.type, a.recv, a.recv_type, a.comm, a.stream);
       },
       {null_send("sendBuf is null"),
        null_recv("recvBuf is null"),
        kType,
        {[](A& a) { a.square = nullptr; }, "sendCountMatrix is null"},
        {[](A& a) { a.matrix[1] = kTooMany; }, "sendCountMatrix[1] is 2147483648"},
        {[](A& a) { a.recv_type = HCCL_DATA_TYPE_INT8; }, "recvType differs"},
        {[](A& a) { a.recv = a.send; }, "recvBuf is sendBuf"},
        kOverlap,
        kStream}},
      {"HcclBarrier", "barrier", [](A& a) { return HcclBarrier(a.comm, a.stream); }, {kStream}},
      {"HcclGroupEnd",
       "allreduce",
       [](A& a) {
         HcclGroupStart();
         HcclAllReduce(a.from, a.to, 2, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, a.comm, nullptr);
         HcclAllReduce(a.from, a.recv, 2, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, a.comm, nullptr);
         return HcclGroupEnd();
       },
       {null_recv("recvBuf is null")}},
  };
}

inline std::vector<Refusals> messages() {
  using namespace wrongs;
  using A = Arguments;
  const Function send = [](A& a) {
    return HcclSend(a.send, a.count, a.type, a.peer, a.comm, a.stream);
  };
  const Function recv = [](A& a) {
    return HcclRecv(a.recv, a.count, a.type, a.peer, a.comm, a.stream);
  };
  const Function batch = [](A& a) {
    return HcclBatchSendRecv(a.batch, a.item_number, a.comm, a.stream);
  };
  return {
      {"HcclSend",
       "recv",
       send,
       {null_send("sendBuf is null"),
        count("count is"),
        kType,
        {[](A& a) { a.peer = 2; }, "destRank is 2"},
        {[](A& a) { a.peer = 1; }, "is the caller itself"},
        kStream},
       recv},
      {"HcclRecv",
       "send",
       recv,
       {null_recv("recvBuf is null"),
        count("count is"),
        kType,
        {[](A& a) { a.peer = 2; }, "srcRank is 2"},
        {[](A& a) { a.peer = 1; }, "is the caller itself"},
        kStream},
       send},
      {"HcclBatchSendRecv",
       "a batch of 2 sends and receives",
       batch,
       {{[](A& a) { a.batch = nullptr; }, "sendRecvInfo is null"},
        {[](A& a) { a.items[1].sendRecvType = HCCL_SEND_RECV_RESERVED; }, "[1].sendRecvType is 2"},
        {[](A& a) { a.items[0].buf = nullptr; }, "[0].buf is null"},
        {[](A& a) { a.items[1].count = kTooMany; }, "[1].count is"},
        {[](A& a) { a.items[1].dataType = kUnknownType; }, "[1].dataType 77"},
        {[](A& a) { a.items[0].remoteRank = 2; }, "[0].remoteRank is 2"},
        {[](A& a) { a.items[0].remoteRank = 1; }, "of rank 1 to itself"},
        {[](A& a) { a.items[1].buf = a.from + 1; }, "overlaps the send of item 0"},
        kStream}},
      // The wrong call is in a group. The other call of that group does not run.
      {"HcclRecv",
       "a batch of 2 sends and receives",
       [](A& a) {
         HcclGroupStart();
         HcclSend(a.from, 2, HCCL_DATA_TYPE_FP32, a.peer, a.comm, nullptr);
         HcclRecv(a.recv, 2, HCCL_DATA_TYPE_FP32, a.peer, a.comm, nullptr);
         return HcclGroupEnd();
       },
       {null_recv("recvBuf is null")}},
  };
}

}  // namespace hccl::testing
