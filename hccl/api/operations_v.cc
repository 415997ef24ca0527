// Operations whose blocks have different lengths: reads HCCL's arrays, and checks every number.
#include <algorithm>
#include <limits>

#include "hccl/api/checks.h"
#include "hccl/api/operations.h"

namespace hccl::api {
namespace {

using Blocks = std::vector<Block>;

// Reads element i of one of HCCL's arrays: a void pointer to 64-bit numbers that may be unaligned.
std::uint64_t number(const void* array, std::size_t i) {
  std::uint64_t value = 0;
  std::memcpy(&value, static_cast<const unsigned char*>(array) + i * sizeof value, sizeof value);
  return value;
}

std::string item(const char* array, std::size_t i) {
  return std::string(array) + "[" + std::to_string(i) + "]";
}

// A buffer with its arrays, and the names that error texts use for them.
struct Side {
  const void* buffer;
  const char* buffer_name;
  const void* counts;
  const char* counts_name;
  const void* displs;
  const char* displs_name;
};

// Returns whether the block ends within the address space.
bool addressable(const void* buffer, const Block& block, std::uint64_t element) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::ptrdiff_t>::max();
  if (block.at > kMost / element - block.count) return false;
  const std::uint64_t bytes = (block.at + block.count) * element;
  return bytes <=
         std::numeric_limits<std::uintptr_t>::max() - reinterpret_cast<std::uintptr_t>(buffer);
}

Status check_arrays(const Side& side) {
  if (side.counts == nullptr) return Status(Code::kPtr, std::string(side.counts_name) + " is null");
  if (side.displs == nullptr) return Status(Code::kPtr, std::string(side.displs_name) + " is null");
  return {};
}

// Reads the blocks that the arrays describe. The displacement of an empty block is ignored.
Result<Blocks> read_blocks(const Side& side, int size, DataType type) {
  Blocks blocks(static_cast<std::size_t>(size));
  bool empty = true;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Block block{number(side.displs, i), number(side.counts, i)};
    if (block.count == 0) continue;
    HCCL_RETURN_IF_ERROR(check_count(block.count, item(side.counts_name, i).c_str()));
    if (!addressable(side.buffer, block, size_of(type))) {
      return Status(Code::kPara, item(side.displs_name, i) + " is " + std::to_string(block.at) +
                                     ": the block would end beyond all memory");
    }
    blocks[i] = block;
    empty = false;
  }
  if (!empty && side.buffer == nullptr) {
    return Status(Code::kPtr, std::string(side.buffer_name) + " is null");
  }
  return blocks;
}

// Checks the rank's own count: the call gives it as an argument and in an array, and both must be
// equal.
Status check_own(std::uint64_t count, const char* argument, const Blocks& blocks, const char* array,
                 int rank) {
  const auto at = static_cast<std::size_t>(rank);
  if (count == blocks[at].count) return {};
  return Status(Code::kPara, std::string(argument) + " is " + std::to_string(count) + ", but " +
                                 item(array, at) + ", of this rank, is " +
                                 std::to_string(blocks[at].count));
}

Result<DataType> check_types(HcclDataType send, HcclDataType recv) {
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(send, "sendType"));
  if (recv != send) return Status(Code::kPara, "recvType differs from sendType");
  return data;
}

Result<CallWithBlocks> exchange_blocks(const Communicator& comm, const void* in, Blocks in_blocks,
                                       void* out, Blocks out_blocks, const char* own,
                                       DataType data) {
  const auto some = [](const Blocks& blocks) {
    return std::any_of(blocks.begin(), blocks.end(), [](const Block& b) { return b.count != 0; });
  };
  if (in != nullptr && in == out && some(in_blocks) && some(out_blocks)) {
    return Status(Code::kPara, "recvBuf is sendBuf");
  }
  const auto rank = static_cast<std::size_t>(comm.rank());
  if (in_blocks[rank].count != out_blocks[rank].count) {
    return Status(Code::kPara, std::string(own) +
                                   " differs from the number that this rank sends to itself: " +
                                   std::to_string(out_blocks[rank].count) + " and " +
                                   std::to_string(in_blocks[rank].count));
  }
  return CallWithBlocks({Op::kAllToAllV, in, out, 0, data}, std::move(in_blocks),
                        std::move(out_blocks));
}

}  // namespace

Result<CallWithBlocks> reduce_scatter_v(const Communicator& comm, void* sendBuf,
                                        const void* sendCounts, const void* sendDispls,
                                        void* recvBuf, std::uint64_t recvCount, HcclDataType type,
                                        HcclReduceOp op) {
  const Side side{sendBuf, "sendBuf", sendCounts, "sendCounts", sendDispls, "sendDispls"};
  HCCL_RETURN_IF_ERROR(check_arrays(side));
  HCCL_RETURN_IF_ERROR(need(recvBuf, recvCount, "recvBuf"));
  HCCL_RETURN_IF_ERROR(check_count(recvCount, "recvCount"));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(const ReduceOp fold, check_reduce(op, data));
  HCCL_ASSIGN_OR_RETURN(Blocks blocks, read_blocks(side, comm.size(), data));
  HCCL_RETURN_IF_ERROR(check_own(recvCount, "recvCount", blocks, "sendCounts", comm.rank()));
  if (sendBuf != nullptr && sendBuf == recvBuf) return Status(Code::kPara, "recvBuf is sendBuf");
  return CallWithBlocks({Op::kReduceScatterV, sendBuf, recvBuf, recvCount, data, fold},
                        std::move(blocks), {});
}

Result<CallWithBlocks> all_gather_v(const Communicator& comm, const void* sendBuf,
                                    std::uint64_t sendCount, void* recvBuf, const void* recvCounts,
                                    const void* recvDispls, HcclDataType type) {
  const Side side{recvBuf, "recvBuf", recvCounts, "recvCounts", recvDispls, "recvDispls"};
  HCCL_RETURN_IF_ERROR(need(sendBuf, sendCount, "sendBuf"));
  HCCL_RETURN_IF_ERROR(check_count(sendCount, "sendCount"));
  HCCL_RETURN_IF_ERROR(check_arrays(side));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_type(type));
  HCCL_ASSIGN_OR_RETURN(Blocks blocks, read_blocks(side, comm.size(), data));
  HCCL_RETURN_IF_ERROR(check_own(sendCount, "sendCount", blocks, "recvCounts", comm.rank()));
  return CallWithBlocks({Op::kAllGatherV, sendBuf, recvBuf, sendCount, data}, {},
                        std::move(blocks));
}

Result<CallWithBlocks> all_to_all_v(const Communicator& comm, const void* sendBuf,
                                    const void* sendCounts, const void* sdispls,
                                    HcclDataType sendType, void* recvBuf, const void* recvCounts,
                                    const void* rdispls, HcclDataType recvType) {
  const Side out{sendBuf, "sendBuf", sendCounts, "sendCounts", sdispls, "sdispls"};
  const Side in{recvBuf, "recvBuf", recvCounts, "recvCounts", rdispls, "rdispls"};
  HCCL_RETURN_IF_ERROR(check_arrays(out));
  HCCL_RETURN_IF_ERROR(check_arrays(in));
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_types(sendType, recvType));
  HCCL_ASSIGN_OR_RETURN(Blocks sent, read_blocks(out, comm.size(), data));
  HCCL_ASSIGN_OR_RETURN(Blocks received, read_blocks(in, comm.size(), data));
  const std::string own = item("recvCounts", static_cast<std::size_t>(comm.rank()));
  return exchange_blocks(comm, sendBuf, std::move(sent), recvBuf, std::move(received), own.c_str(),
                         data);
}

Result<CallWithBlocks> all_to_all_vc(const Communicator& comm, const void* sendBuf,
                                     const void* sendCountMatrix, HcclDataType sendType,
                                     void* recvBuf, HcclDataType recvType) {
  if (sendCountMatrix == nullptr) return Status(Code::kPtr, "sendCountMatrix is null");
  HCCL_ASSIGN_OR_RETURN(const DataType data, check_types(sendType, recvType));
  const auto size = static_cast<std::size_t>(comm.size());
  const auto rank = static_cast<std::size_t>(comm.rank());
  // All ranks have the same matrix, so either all ranks refuse the matrix or none does.
  for (std::size_t i = 0; i < size * size; ++i) {
    HCCL_RETURN_IF_ERROR(
        check_count(number(sendCountMatrix, i), item("sendCountMatrix", i).c_str()));
  }
  Blocks sent(size);
  Blocks received(size);
  Block next_out;
  Block next_in;
  for (std::size_t peer = 0; peer < size; ++peer) {
    // Packed: each block begins where the previous one ends.
    next_out = {next_out.at + next_out.count, number(sendCountMatrix, rank * size + peer)};
    next_in = {next_in.at + next_in.count, number(sendCountMatrix, peer * size + rank)};
    sent[peer] = next_out;
    received[peer] = next_in;
  }
  HCCL_RETURN_IF_ERROR(need(sendBuf, next_out.at + next_out.count, "sendBuf"));
  HCCL_RETURN_IF_ERROR(need(recvBuf, next_in.at + next_in.count, "recvBuf"));
  return exchange_blocks(comm, sendBuf, std::move(sent), recvBuf, std::move(received),
                         "sendCountMatrix", data);
}

}  // namespace hccl::api
