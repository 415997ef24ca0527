#include "tests/support/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "hccl/base/waiter.h"
#include "tests/support/siblings.h"
#include "transport/registry.h"

namespace hccl::testing {

Rank::Rank(int rank, int size, transport::BootstrapExchange exchange)
    : rank_(rank), size_(size), exchange_(std::move(exchange)) {
  config_.plugin_path = HCCL_TEST_PLUGIN_PATH;
}

transport::OpenArgs Rank::open_args(Deadline deadline) const {
  transport::OpenArgs args;
  args.rank = rank_;
  args.size = size_;
  args.hosts.assign(static_cast<std::size_t>(size_), 0);
  args.exchange = exchange_;
  args.deadline = deadline;
  for (std::size_t i = 0; i < args.key.size(); ++i) args.key[i] = static_cast<std::uint8_t>(7 * i);
  args.address = "127.0.0.1";
  args.config = &config_;
  args.siblings = siblings();
  return args;
}

Result<std::unique_ptr<transport::Mesh>> Rank::open(std::string_view transport, Wire wire) {
  config_.wire = wire;
  return transport::open(transport, open_args(Deadline::after(std::chrono::seconds(30))));
}

void Rank::barrier() const {
  static_cast<void>(exchange_("", Deadline::after(std::chrono::seconds(60))));
}

Status wait_all(transport::Mesh& mesh, const std::vector<transport::Request*>& requests,
                std::chrono::milliseconds at_most) {
  std::size_t done = 0;
  const auto ready = [&] {
    while (done < requests.size() && requests[done]->done()) ++done;
    if (done == requests.size()) return true;
    mesh.progress();
    while (done < requests.size() && requests[done]->done()) ++done;
    return done == requests.size();
  };
  const bool crowded = static_cast<unsigned>(mesh.size()) > std::thread::hardware_concurrency();
  const Waiter waiter{.timeout = at_most, .policy = {.shared_cores = crowded}};
  if (waiter.until(ready, mesh.sleeper()) != Waited::kReady) {
    return Status(Code::kTimeout, std::to_string(done) + " of " + std::to_string(requests.size()) +
                                      " requests done in time");
  }
  for (const transport::Request* request : requests) {
    if (!request->status().ok()) return request->status();
  }
  return {};
}

Status wait_one(transport::Mesh& mesh, const transport::Request& request,
                std::chrono::milliseconds at_most) {
  // wait_all does not change the request.
  return wait_all(mesh, {const_cast<transport::Request*>(&request)}, at_most);
}

void exchange_all(transport::Mesh& mesh, std::size_t bytes) {
  std::vector<transport::Request> requests(2 * static_cast<std::size_t>(mesh.size()));
  std::vector<std::vector<std::byte>> data(requests.size());
  std::vector<transport::Request*> all;
  const auto message = [bytes](int from, int to) {
    return pattern(bytes, static_cast<std::uint64_t>(from) * 100 + static_cast<std::uint64_t>(to));
  };
  for (int peer = 0; peer < mesh.size(); ++peer) {
    const auto p = 2 * static_cast<std::size_t>(peer);
    data[p] = message(mesh.rank(), peer);
    data[p + 1].resize(bytes);
    mesh.recv(requests[p + 1], peer, 1, data[p + 1]);
    mesh.send(requests[p], peer, 1, data[p]);
    all.insert(all.end(), {&requests[p], &requests[p + 1]});
  }
  const Status status = wait_all(mesh, all);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int peer = 0; peer < mesh.size(); ++peer) {
    ASSERT_TRUE(same(data[2 * static_cast<std::size_t>(peer) + 1], message(peer, mesh.rank())))
        << "the message from rank " << peer;
  }
}

bool sleep_until_done(transport::Mesh& mesh, const transport::Request& request) {
  using std::chrono::seconds;
  while (!request.done()) {
    if (mesh.progress()) continue;
    const auto start = Deadline::Clock::now();
    const std::uint32_t ticket = mesh.sleeper().prepare();
    if (!mesh.progress() && !request.done()) mesh.sleeper().sleep(ticket, seconds(20));
    mesh.sleeper().awake();
    if (Deadline::Clock::now() - start > seconds(15)) return false;
  }
  return true;
}

bool same(const std::vector<std::byte>& one, const std::vector<std::byte>& other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  // Word by word: the thread sanitizer follows each store.
  for (std::size_t i = 0; i < size; i += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, std::min(sizeof state, size - i));
  }
  return bytes;
}

}  // namespace hccl::testing
