// Describes bytes to MPI, whose counts are ints: a message of any size stays one MPI message.
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>

namespace hccl::transport::mpi {

/// `count()` elements of `type()` are exactly `size` bytes. A Block must live until the call that
/// posts the message returns.
class Block {
 public:
  static constexpr std::size_t kPiece = std::size_t{1} << 30;

  explicit Block(std::size_t size) {
    if (size <= INT_MAX) {
      count_ = static_cast<int>(size);
      return;
    }
    const int pieces = static_cast<int>(size / kPiece);
    const int rest = static_cast<int>(size % kPiece);
    MPI_Datatype piece = MPI_DATATYPE_NULL;
    MPI_Datatype whole = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(kPiece), MPI_BYTE, &piece);
    MPI_Type_contiguous(pieces, piece, &whole);
    const int lengths[] = {1, rest};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(pieces) * static_cast<MPI_Aint>(kPiece)};
    const MPI_Datatype types[] = {whole, MPI_BYTE};
    MPI_Type_create_struct(2, lengths, places, types, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&whole);
    MPI_Type_free(&piece);
    count_ = 1;
  }
  ~Block() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace hccl::transport::mpi
