// Finds the ranks of a mesh in MPI_COMM_WORLD and makes a communicator for them.
#include <algorithm>
#include <string>
#include <utility>

#include "hccl/base/random.h"
#include "transport/agree.h"
#include "transport/mpi/mpi_mesh.h"

namespace hccl::transport::mpi {
namespace {

/// Makes a communicator of exactly the processes of the mesh. Blocks until each of them has called
/// this function. A duplicate of MPI_COMM_WORLD would wait for processes that are not in the mesh.
Result<std::shared_ptr<Group>> make_group(Process& process, const RankMap& rank_map, int tag) {
  process.sweep();
  const Process::Stay stay(process);
  if (!stay) return Status(Code::kUnavail, "MPI is finalised");
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, static_cast<int>(rank_map.world_ranks().size()),
                 rank_map.world_ranks().data(), &members);
  MPI_Comm comm = MPI_COMM_NULL;
  const int result = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  if (result != MPI_SUCCESS || comm == MPI_COMM_NULL) {
    return mpi_error(Code::kUnavail, "MPI cannot make a communicator for the mesh", result);
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  return std::make_shared<Group>(process, comm);
}

}  // namespace

Result<std::unique_ptr<Mesh>> open(const OpenArgs& args) {
  Result<Process*> process = Process::get();
  const auto introduce = [&]() -> Result<std::string> {
    if (!process.ok()) return process.status();
    std::uint32_t number = 0;
    HCCL_RETURN_IF_ERROR(random_bytes(&number, sizeof number));
    ByteWriter writer;
    writer.put(Seat{(*process)->world_rank(), (*process)->world_size(), (*process)->nonce(),
                    (*process)->largest_tag()});
    return writer.put(number).take();
  };
  HCCL_ASSIGN_OR_RETURN(std::vector<std::string> parts, agree(args, introduce()));
  std::vector<Seat> seats;
  std::uint32_t number = 0;  // rank 0's random number; keeps concurrent calls of open() apart
  for (std::size_t r = 0; r < parts.size(); ++r) {
    ByteReader reader(parts[r]);
    seats.push_back(reader.get<Seat>());
    const auto random = reader.get<std::uint32_t>();
    if (r == 0) number = random;
    const Seat& seat = seats.back();
    if (!reader.finished() || seat.largest_tag < 0 || seat.world_rank < 0 ||
        seat.world_rank >= seat.world_size) {
      return Status(Code::kInternal, "rank " + std::to_string(r) + " sent no MPI rank",
                    static_cast<int>(r));
    }
  }
  HCCL_ASSIGN_OR_RETURN(RankMap rank_map, RankMap::make(seats));

  // One rank of each process makes the communicator, and the other ranks take it from that rank.
  const bool leads = rank_map.leader_of(args.rank) == args.rank;
  const int takers = rank_map.ranks_beside(args.rank) - 1;
  Result<std::shared_ptr<Group>> group = std::shared_ptr<Group>();
  std::uint64_t loan = 0;
  if (leads) {
    int smallest = seats[0].largest_tag;
    for (const Seat& seat : seats)
      smallest = std::min(smallest, static_cast<int>(seat.largest_tag));
    group = make_group(**process, rank_map,
                       static_cast<int>(number % static_cast<std::uint32_t>(smallest)));
    if (group.ok()) loan = (*process)->lend(*group, takers);
  }
  const auto all =
      agree(args, group.ok() ? Result<std::string>(ByteWriter().put(loan).take()) : group.status());
  if (!all.ok()) {
    if (leads) (*process)->take_back(loan);
    return all.status();
  }
  if (!leads) {
    ByteReader reader(all.value()[static_cast<std::size_t>(rank_map.leader_of(args.rank))]);
    group = (*process)->borrow(reader.get<std::uint64_t>());
    if (*group == nullptr) return Status(Code::kInternal, "a rank of this process lent nothing");
  }
  return std::unique_ptr<Mesh>(new MpiMesh(**process, *group, std::move(rank_map), args));
}

}  // namespace hccl::transport::mpi
