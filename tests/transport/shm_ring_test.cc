// The ring without a link, a link whose peer writes nonsense, and the checks of a segment.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "transport/shm/link.h"
#include "transport/shm/ring.h"
#include "transport/shm/segment.h"

namespace hccl::transport::shm {
namespace {

constexpr std::uint64_t kSize = 4096;

struct Shared {
  alignas(kLine) std::array<std::byte, kSize> bytes{};
  RingControl control;
  RingBytes ring() { return {bytes.data(), kSize}; }
};

std::byte byte_at(std::uint64_t place) {
  return static_cast<std::byte>(place * 131 + (place >> 8));
}

TEST(Ring, CarriesRandomPiecesBetweenTwoThreads) {
  constexpr int kFrames = 60'000;
  Shared shared;
  std::jthread writing([&shared] {
    RingWriter writer(&shared.control, shared.ring());
    std::mt19937 random(1);
    std::vector<std::byte> payload(kSize);
    std::uint64_t place = 0;
    for (int i = 0; i < kFrames; ++i) {
      const std::uint32_t piece = random() % (i % 3 == 0 ? kSize - 2 * kLine : 100);
      for (std::uint32_t b = 0; b < piece; ++b) payload[b] = byte_at(place + b);
      while (writer.room(piece) < static_cast<std::int64_t>(piece)) std::this_thread::yield();
      writer.put(Frame{place + piece, piece, static_cast<std::uint16_t>(i % 256), i % 2 == 0},
                 payload.data());
      place += piece;
    }
    writer.close();
  });
  RingReader reader(&shared.control, shared.ring());
  std::vector<std::byte> payload(kSize);
  std::uint64_t place = 0;
  int frames = 0;
  for (;;) {
    const bool closed = reader.closed();
    Frame frame;
    const Peek next = reader.peek(frame);
    ASSERT_NE(next, Peek::kCorrupt);
    if (next == Peek::kEmpty) {
      if (closed) break;
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(frame.total, place + frame.piece);
    ASSERT_EQ(frame.lane, frames % 256);
    ASSERT_EQ(frame.eager, frames % 2 == 0);
    reader.copy(frame, payload.data());
    for (std::uint32_t b = 0; b < frame.piece; ++b) ASSERT_EQ(payload[b], byte_at(place + b));
    place += frame.piece;
    ++frames;
    reader.pop(frame);
    if (frames % 5 == 0 || reader.peek(frame) == Peek::kEmpty) reader.release();
  }
  EXPECT_EQ(frames, kFrames);
}

TEST(Ring, IsFullWhenItsBytesAreUsed) {
  Shared shared;
  RingWriter writer(&shared.control, shared.ring());
  RingReader reader(&shared.control, shared.ring());
  const std::byte one{1};
  int written = 0;
  for (; writer.room(1) >= 1; ++written) writer.put(Frame{1, 1, 0, true}, &one);
  EXPECT_EQ(written, static_cast<int>(kSize / kLine));
  Frame frame;
  ASSERT_EQ(reader.peek(frame), Peek::kFrame);
  reader.pop(frame);
  EXPECT_LT(writer.room(1), 1) << "room before the reader has given it back";
  reader.release();
  EXPECT_GE(writer.room(1), 1);
  EXPECT_FALSE(writer.corrupt());
}

TEST(Ring, FindsOutImpossiblePositions) {
  for (const std::uint64_t head :
       {kSize + kLine, std::uint64_t{1}, std::numeric_limits<std::uint64_t>::max()}) {
    Shared shared;
    RingReader reader(&shared.control, shared.ring());
    shared.control.head = head;
    Frame frame;
    EXPECT_EQ(reader.peek(frame), Peek::kCorrupt) << head;
  }
  for (const std::uint64_t tail : {std::uint64_t{kLine * 2}, std::uint64_t{1}}) {
    Shared shared;
    RingWriter writer(&shared.control, shared.ring());
    const std::byte one{1};
    writer.put(Frame{1, 1, 0, true}, &one);
    shared.control.tail = tail;
    EXPECT_LT(writer.room(kSize), 0) << tail;
    EXPECT_TRUE(writer.corrupt()) << tail;
  }
}

// ---- a link whose peer is this test ----

class BadPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = Segment::create(2);
    ASSERT_TRUE(created.ok()) << created.status().message();
    segment_ = std::move(created).value();
    peer_ = RingWriter(segment_->control(1, 0), segment_->ring(1, 0));
    link_ = std::make_unique<Link>(0, 1, RingWriter(segment_->control(0, 1), segment_->ring(0, 1)),
                                   RingReader(segment_->control(1, 0), segment_->ring(1, 0)),
                                   &segment_->state(1), -1);
  }

  void post(std::span<std::byte> bytes, std::uint32_t lane = 0) {
    receive_.begin(1, lane, bytes.data(), bytes.size());
    link_->recv(receive_);
  }
  void put(Frame frame) { peer_.put(frame, payload_.data()); }

  /// Expects that the posted receive failed because of corruption, and that all later requests
  /// fail, too.
  void expect_corrupt() {
    for (int i = 0; i < 10; ++i) link_->progress();
    ASSERT_TRUE(receive_.done());
    EXPECT_EQ(receive_.status().code(), Code::kTcpTransfer);
    EXPECT_EQ(receive_.status().culprit(), 1);
    EXPECT_NE(receive_.status().message().find("corrupt"), std::string::npos);
    Request later;
    later.begin(1, 3, payload_.data(), 8);
    link_->send(later);
    ASSERT_TRUE(later.done());
    EXPECT_EQ(later.status().code(), Code::kTcpTransfer);
  }

  /// Sends messages of this length that have no receive; each takes `taken` bytes of the staging
  /// buffer.
  void flood(std::uint32_t bytes, std::uint64_t taken) {
    post(buffer_);
    const std::uint64_t most = Limits(segment_->layout().ring_bytes).staging / taken;
    for (std::uint64_t i = 0; i <= most && !receive_.done(); ++i) {
      put(Frame{bytes, bytes, 9, true});
      link_->progress();
    }
    expect_corrupt();
  }

  std::shared_ptr<Segment> segment_;
  RingWriter peer_;
  std::unique_ptr<Link> link_;
  Request receive_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(1 << 20);
  std::vector<std::byte> buffer_ = std::vector<std::byte>(100'000);
};

struct WrongFrames {
  const char* name;
  std::vector<Frame> frames;
};
class BadFrames : public BadPeer, public ::testing::WithParamInterface<WrongFrames> {};

TEST_P(BadFrames, AreCorrupt) {
  post(buffer_);
  for (const Frame& frame : GetParam().frames) put(frame);
  expect_corrupt();
}

INSTANTIATE_TEST_SUITE_P(
    Link, BadFrames,
    ::testing::Values(WrongFrames{"PieceLongerThanTheMessage",
                                  {{100'000, 60'000, 0, false}, {100'000, 60'000, 0, false}}},
                      WrongFrames{"TotalThatChangesOnTheWay",
                                  {{100'000, 1000, 0, false}, {2'000'000'000, 60'000, 0, false}}},
                      WrongFrames{"PieceLongerThanItsTotal", {{10, 1000, 0, false}}},
                      WrongFrames{"EmptyPiece", {{100'000, 0, 0, false}}},
                      WrongFrames{"LaneThatDoesNotExist", {{8, 8, 256, true}}},
                      WrongFrames{"LongMessageThatNobodyAskedFor", {{100'000, 60'000, 9, false}}},
                      WrongFrames{"EagerMessageThatIsNotSmall", {{60'000, 60'000, 9, true}}}),
    [](const auto& info) { return info.param.name; });

TEST_F(BadPeer, PieceThatReachesBeyondTheHead) {
  post(buffer_);
  put(Frame{100'000, 64, 0, false});
  segment_->control(1, 0)->head.store(kLine);
  expect_corrupt();
}

TEST_F(BadPeer, MoreUnaskedMessagesThanTheStagingHolds) { flood(1000, 1000); }
TEST_F(BadPeer, MoreUnaskedEmptyMessagesThanTheStagingHolds) { flood(0, kLine); }

TEST_F(BadPeer, ReaderPositionBeyondWhatWasWritten) {
  post(buffer_);
  segment_->control(0, 1)->posted[0].store(100);
  segment_->control(0, 1)->tail.store(std::uint64_t{1} << 40);
  std::vector<Request> sends(4);  // more than the ring holds, so the position is read
  for (Request& request : sends) {
    request.begin(1, 0, payload_.data(), payload_.size());
    link_->send(request);
    for (int i = 0; i < 100; ++i) link_->progress();
  }
  expect_corrupt();
}

TEST_F(BadPeer, CreditForMessagesThatWereNeverSent) {
  post(buffer_);
  segment_->control(0, 1)->eager_taken.store(std::uint64_t{1} << 40);
  std::vector<Request> sends(1000);
  for (Request& request : sends) {
    request.begin(1, 0, payload_.data(), 4096);
    link_->send(request);
  }
  expect_corrupt();
}

// ---- segments ----

TEST(Segment, IsSealedAgainstShrinkingAndGrowing) {
  auto segment = Segment::create(3);
  ASSERT_TRUE(segment.ok());
  const int memfd = (*segment)->memfd();
  const int seals = ::fcntl(memfd, F_GET_SEALS);
  EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(::ftruncate(memfd, 0), 0);
  EXPECT_EQ(errno, EPERM);
  EXPECT_NE(::fcntl(memfd, F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Segment, IsNotAttachedUnlessSizeSealsAndHeaderAreRight) {
  auto segment = Segment::create(3);
  ASSERT_TRUE(segment.ok());
  EXPECT_TRUE(Segment::attach(Fd(::dup((*segment)->memfd())), 3).ok());
  EXPECT_FALSE(Segment::attach(Fd(::dup((*segment)->memfd())), 4).ok()) << "another size";
  EXPECT_FALSE(Segment::attach(Fd(), 3).ok()) << "no descriptor";
  const auto size = static_cast<off_t>((*segment)->layout().total);
  for (const bool seal : {false, true}) {
    Fd other(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(other.get(), size), 0);
    if (seal) ::fcntl(other.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    const auto attached = Segment::attach(std::move(other), 3);
    ASSERT_FALSE(attached.ok());
    EXPECT_NE(attached.status().message().find(seal ? "not a segment" : "not sealed"),
              std::string::npos);
  }
}

TEST(Segment, StaysSmallForManyRanks) {
  EXPECT_EQ(Layout::of(2).ring_bytes, 2u << 20);
  for (int ranks = 1; ranks <= 256; ++ranks) {
    const Layout layout = Layout::of(ranks);
    EXPECT_EQ(layout.ring_bytes & (layout.ring_bytes - 1), 0u);
    EXPECT_LE(layout.total, static_cast<std::uint64_t>(ranks) * (5u << 20));
  }
}

}  // namespace
}  // namespace hccl::transport::shm
