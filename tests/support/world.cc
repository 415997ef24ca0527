#include "tests/support/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "hccl/base/random.h"
#include "tests/support/siblings.h"
#include "tests/support/threads.h"

#ifdef HCCL_TEST_MPI
#include <mpi.h>
#endif

namespace hccl::testing {
namespace {

#ifdef HCCL_TEST_MPI

// With processes, MPI gives the ranks and carries the root info, as in programs written for HCCL.
class Mpi {
 public:
  Mpi() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  ~Mpi() { MPI_Finalize(); }
  int rank = 0;
  int size = 1;
};

const Mpi& mpi() {
  static const Mpi instance;
  return instance;
}

std::vector<int> ranks_here(int) { return {mpi().rank}; }
bool root_here() { return mpi().rank == 0; }
void carry(std::array<char, join::RootInfo::kBytes>& bytes) {
  MPI_Bcast(bytes.data(), static_cast<int>(bytes.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
}
void meet() { MPI_Barrier(MPI_COMM_WORLD); }

#else

std::vector<int> ranks_here(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
  return ranks;
}
bool root_here() { return true; }
void carry(std::array<char, join::RootInfo::kBytes>&) {}
void meet() {}

#endif

}  // namespace

std::vector<int> World::sizes() {
#ifdef HCCL_TEST_MPI
  return {mpi().size};
#elif defined(__SANITIZE_THREAD__)
  return {1, 2, 3, 5, 8};  // races do not depend on the other sizes
#else
  return {1, 2, 3, 4, 5, 6, 7, 8};
#endif
}

World::World(int size, const Config& config)
    : World(std::vector<Config>(static_cast<std::size_t>(size), config)) {}

World::World(const std::vector<Config>& configs) {
  const int size = static_cast<int>(configs.size());
  join::RootInfo info;
  std::array<char, join::RootInfo::kBytes> bytes{};
  if (root_here()) {
    EXPECT_TRUE(random_bytes(info.secret.data(), info.secret.size()).ok());
    EXPECT_TRUE(random_bytes(info.id.data(), info.id.size()).ok());
    info.address = "127.0.0.1";
    auto root = join::Node::root(control_, info, configs.front(),
                                 make_logger(configs.front().log_level, "root"));
    EXPECT_TRUE(root.ok()) << root.status().message();
    if (root.ok()) node_ = std::move(*root);
    info.encode(bytes);
  }
  carry(bytes);
  const auto decoded = join::RootInfo::decode(bytes);
  EXPECT_TRUE(decoded.ok()) << decoded.status().message();
  if (!decoded.ok()) return;

  if (node_ == nullptr) node_ = std::make_shared<join::Node>(control_, *decoded);
  const std::vector<int> here = ranks_here(size);
  ranks_.resize(here.size());
  on_threads(static_cast<int>(here.size()), [&](int local_rank) {
    const auto i = static_cast<std::size_t>(local_rank);
    const Config& config = configs[static_cast<std::size_t>(here[i])];
    const Logger log = make_logger(config.log_level, "rank " + std::to_string(here[i]));
    auto control = join::World::join(node_, size, here[i], config, log);
    EXPECT_TRUE(control.ok()) << control.status().message();
    if (!control.ok()) return;
    auto made = core::Communicator::world(*control, "world", config, log, siblings());
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) ranks_[i] = *made;
  });
  meet();  // no rank may fail while another one joins
}

World::~World() {
  run([](core::Communicator& communicator) { communicator.leave(); });
}

bool World::ok() const {
  return !ranks_.empty() &&
         std::all_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r != nullptr; });
}

void World::run(const std::function<void(core::Communicator&)>& body) {
  if (!ok()) return;
  on_threads(static_cast<int>(ranks_.size()),
             [&](int i) { body(*ranks_[static_cast<std::size_t>(i)]); });
}

}  // namespace hccl::testing
