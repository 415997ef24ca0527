// Messages with tags, from peers that send any headers: the mesh is a script. Every message ends
// exactly once, and no byte is written outside of a receive.
#include "hccl/core/mailbox.h"

#include <future>

#include "hccl/base/log.h"
#include "tests/fuzz/fuzz.h"
#include "transport/nap_sleeper.h"

namespace {

using namespace hccl;
using namespace hccl::transport;
using transport::Request;

constexpr int kRanks = 3;

class Script final : public Mesh {
 public:
  Script(fuzz::Input input, std::promise<void>& over) : input_(input), over_(over) {}

  std::string_view name() const override { return "script"; }
  int rank() const override { return 0; }
  int size() const override { return kRanks; }
  Sleeper& sleeper() override { return sleeper_; }
  void send(Request& request, int peer, std::uint32_t lane,
            std::span<const std::byte> bytes) override {
    request.begin(peer, lane, nullptr, bytes.size());
    request.finish(why_);
  }
  void recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) override {
    request.begin(peer, lane, bytes.data(), bytes.size());
    if (!why_.ok()) return request.finish(why_);
    waiting_.push_back(&request);
  }
  bool progress() override {
    if (!why_.ok()) return false;
    if (input_.empty()) {
      end();
      return false;
    }
    step();
    return true;
  }
  void abort(Status why) override {
    why_ = std::move(why);
    end();
    for (Request* const each : std::exchange(waiting_, {})) each->finish(why_);
  }

 private:
  void end() {
    if (!std::exchange(told_, true)) over_.set_value();
  }
  void step() {
    const std::uint8_t what = input_.byte();
    if (waiting_.empty()) return;
    const auto at = waiting_.begin() + what % waiting_.size();
    Request& request = **at;
    // Messages of one peer and lane arrive in the order of their receives.
    const auto first = std::find_if(waiting_.begin(), waiting_.end(), [&](const Request* each) {
      return each->peer_ == request.peer_ && each->lane_ == request.lane_;
    });
    Request& next = **first;
    waiting_.erase(first);
    if (what >= 250) return next.finish(Status(Code::kRemote, "the peer has gone", next.peer_));
    if (next.lane_ == 0) {
      header(next);
    } else if (next.size_ != 0) {
      std::memset(next.data_, what, next.size_);
    }
    next.finish();
  }
  void header(Request& request) {
    PROMISE(request.size_ == 64);
    const std::uint8_t what = input_.byte();
    std::memset(request.data_, what, request.size_);
    if (what >= 240) {
      const std::string_view bytes = input_.bytes(64);
      if (!bytes.empty()) std::memcpy(request.data_, bytes.data(), bytes.size());
      return;
    }
    const std::uint8_t kind = static_cast<std::uint8_t>(1 + what % 5);
    const auto tag = static_cast<std::int32_t>(input_.below(3));
    constexpr std::uint64_t kSizes[] = {0, 1, 40, 41, 1000, 16 << 10, (16 << 10) + 1, ~0ull};
    const std::uint64_t bytes = kSizes[input_.byte() % 8], id = input_.below(6);
    std::memcpy(request.data_, &kind, sizeof kind);
    std::memcpy(request.data_ + 4, &tag, sizeof tag);
    std::memcpy(request.data_ + 8, &bytes, sizeof bytes);
    std::memcpy(request.data_ + 16, &id, sizeof id);
  }

  fuzz::Input input_;
  std::promise<void>& over_;
  bool told_ = false;
  NapSleeper sleeper_;
  Status why_;
  std::vector<Request*> waiting_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  std::promise<void> posted, over;
  auto ready = posted.get_future();
  const auto box = std::make_shared<core::Mailbox>(
      0, kRanks, "fuzz",
      [&](const AbortFlag&) -> Result<core::OpenedMesh> {
        ready.wait();
        return core::OpenedMesh{std::make_unique<Script>(input, over), {}};
      },
      WaitPolicy{}, make_logger("off", "fuzz"));
  std::vector<std::unique_ptr<std::byte[]>> buffers;
  std::vector<core::MessagePtr> messages;
  std::atomic<int> told = 0;
  const std::uint32_t number = input.below(8);
  for (std::uint32_t i = 0; i < number; ++i) {
    constexpr std::uint64_t kSizes[] = {0, 1, 40, 41, 1000, 16 << 10, (16 << 10) + 1, 100'000};
    const std::uint8_t what = input.byte();
    const std::uint64_t bytes = kSizes[what % 8];
    const auto tag = static_cast<std::int32_t>(input.below(3));
    const int peer = (what >> 4) % (kRanks + 1) - 1;
    buffers.emplace_back(new std::byte[bytes]());
    const auto done = [&](const Status&) { ++told; };
    messages.push_back((what & 8) != 0 && peer >= 0
                           ? box->send(peer, tag, buffers.back().get(), bytes, done)
                           : box->recv(peer, tag, buffers.back().get(), bytes, done));
  }
  box->start();
  posted.set_value();
  over.get_future().wait();
  box->end(Status(Code::kRemote, "over"));
  box->stop();
  for (const auto& each : messages) PROMISE(each->done());
  PROMISE(told == static_cast<int>(messages.size()));
  return 0;
}
