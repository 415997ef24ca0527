#include "transport/shm/handover.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "hccl/base/auth.h"
#include "hccl/base/bytes.h"
#include "hccl/base/error_text.h"
#include "hccl/base/random.h"
#include "hccl/base/socket.h"
#include "hccl/memory/heap.h"
#include "transport/agree.h"
#include "transport/shm/meeting.h"
#include "transport/siblings.h"

namespace hccl::transport::shm {
namespace {

constexpr std::size_t kReasonCap = 1024;
constexpr std::size_t kOfferCap = 64;  // the most bytes of an offer, without 8 for each rank
// The hand-over happens inside one host between ranks that are all present. If it takes longer, a
// rank is stuck, and the caller needs the rest of its time for another transport.
constexpr std::chrono::seconds kHandOverLimit{10};
constexpr std::chrono::seconds kGreetingLimit{5};

/// Encodes a rank's message in a round: its part, or the reason why it has none. For agree() the
/// message is a success, because ranks of other hosts must not fail for this reason.
std::string say(const Result<std::string>& part) {
  ByteWriter writer;
  writer.put(static_cast<std::int32_t>(part.status().code()));
  writer.put_text(
      std::string_view(part.ok() ? part.value() : part.status().message()).substr(0, kReasonCap));
  return writer.take();
}

/// Whether this code means that a process lacks memory or descriptors. Other failures may follow
/// from such a lack in another process.
bool is_lack(Code code) { return code == Code::kSyscall || code == Code::kOom; }

/// Runs one round. Returns the first part that is not empty. If members failed, returns the first
/// failure for which is_lack() holds, or else the first failure. If the exchange fails, returns
/// this rank's own failure, or else that of the exchange.
Result<std::string> round(const OpenArgs& args, const std::vector<int>& members,
                          const Result<std::string>& mine) {
  const Result<std::vector<std::string>> parts = agree(args, say(mine));
  if (!parts.ok()) return mine.ok() ? parts.status() : mine.status();
  std::string first;
  Status failed;
  for (const int rank : members) {
    ByteReader reader(parts.value()[static_cast<std::size_t>(rank)]);
    const auto code = reader.get<std::int32_t>();
    std::string text = reader.get_text(kReasonCap);
    if (!reader.finished() || code < 0 || code > static_cast<int>(Code::kOom)) {
      return Status(Code::kInternal, "rank " + std::to_string(rank) + " cannot be understood",
                    rank);
    }
    if (code == 0) {
      if (first.empty()) first = std::move(text);
    } else if (failed.ok() || (is_lack(static_cast<Code>(code)) && !is_lack(failed.code()))) {
      const std::string who =
          text.starts_with("rank ") ? "" : "rank " + std::to_string(rank) + ": ";
      failed = Status(static_cast<Code>(code), who + text, rank);
    }
  }
  if (!failed.ok()) return failed;
  return first;
}

Result<std::string> part_of(const Status& status) {
  if (status.ok()) return std::string();
  return status;
}

Result<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return syscall_failure("SO_PEERCRED");
  }
  if (peer.uid != ::geteuid()) {
    return Status(Code::kTcpConnect,
                  "the peer runs as user " + std::to_string(peer.uid) + ", not as this one");
  }
  return peer;
}

struct Opening {  // the part that the leader publishes
  std::string path;
  Uuid id{};

  std::string text() const { return ByteWriter().put(id).put_text(path).take(); }
  static Result<Opening> parse(std::string_view text) {
    ByteReader reader(text);
    Opening opening;
    opening.id = reader.get<Uuid>();
    opening.path = reader.get_text(Meeting::kPathCap);
    if (!reader.finished()) {
      return Status(Code::kInternal, "the leader's shared-memory offer cannot be read");
    }
    return opening;
  }
};

Handshake handshake(Handshake::Side side, const OpenArgs& args, const Uuid& id) {
  return Handshake(side, args.key, id, "shm");
}

// ---- the leader's side ----

/// The first message of a member, before it sends its descriptors.
struct Introduction {
  std::uint32_t place = 0;
  std::uint32_t has_heap = 0;
};

/// The descriptors that a member sends: its wake-up descriptor, and its device heap if it has one.
std::vector<int> own_fds(const OpenArgs& args, int wake) {
  std::vector<int> fds{wake};
  if (args.heap != nullptr) fds.push_back(args.heap->memfd().get());
  return fds;
}

std::size_t area_bytes(const OpenArgs& args, std::size_t members) {
  return args.area_bytes == nullptr ? 0 : args.area_bytes(static_cast<int>(members));
}

/// Accepts the members, whose connections already wait in the listener, and receives their
/// descriptors.
Result<std::vector<Fd>> receive_guests(const OpenArgs& args, const std::vector<int>& members,
                                       const Meeting& meeting, const Uuid& id, Segment& segment,
                                       Deadline deadline) {
  std::vector<Fd> guests(members.size());
  for (std::size_t missing = members.size() - 1; missing != 0;) {
    HCCL_ASSIGN_OR_RETURN(Fd socket, accept_one(meeting.listener.get()));
    // All members have connected. An empty queue means that one of them was rejected below.
    if (!socket.valid()) {
      return Status(Code::kTcpConnect,
                    std::to_string(missing) + " rank(s) of this host could not prove who they are");
    }
    auto peer = peer_of(socket.get());
    if (!peer.ok()) continue;
    const Deadline patience = Deadline::after(kGreetingLimit).sooner(deadline);
    if (!authenticate(socket.get(), handshake(Handshake::Side::kServer, args, id), patience).ok()) {
      continue;
    }
    Introduction guest;
    if (!recv_all(socket.get(), {reinterpret_cast<char*>(&guest), sizeof guest}, patience).ok()) {
      continue;
    }
    const std::uint32_t place = guest.place;
    if (place == 0 || place >= guests.size() || guests[place].valid() || guest.has_heap > 1) {
      continue;
    }
    auto fds = recv_fds(socket.get(), 1 + guest.has_heap, patience);
    if (!fds.ok()) return fds.status().with_context("taking over descriptors");
    segment.wake_fds[place] = std::move(fds->front());
    if (guest.has_heap != 0) segment.heap_fds[place] = std::move(fds->back());
    segment.pids[place] = peer->pid;
    guests[place] = std::move(socket);
    --missing;
  }
  return guests;
}

/// Sends the segment to one member.
Status serve(const Fd& guest, const Segment& segment, Deadline deadline) {
  ByteWriter writer;
  std::vector<int> fds{segment.memfd()};
  for (const Fd& fd : segment.wake_fds) fds.push_back(fd.get());
  for (std::size_t place = 0; place < segment.pids.size(); ++place) {
    const Fd& heap = segment.heap_fds[place];
    writer.put(segment.pids[place]);
    writer.put(static_cast<std::uint8_t>(heap.valid()));
    if (heap.valid()) fds.push_back(heap.get());
  }
  HCCL_RETURN_IF_ERROR(send_frame(guest.get(), writer.take(), deadline));
  return send_fds(guest.get(), fds, deadline);
}

/// The number of members to serve at once, that is, before the first of them has answered.
/// Descriptors in transit count against the user's limit, and other jobs use a part of that limit.
std::size_t served_at_once(const Segment& segment) {
  constexpr std::size_t kMost = 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  const std::size_t each = 1 + segment.wake_fds.size() + segment.heap_fds.size();
  return std::clamp<std::size_t>(limit.rlim_cur / 4 / each, 1, kMost);
}

/// Sends the segment to the first member of each other process and waits for the answers. Then
/// tells all other members to share the mapping that their process now has.
Status serve_all(const std::vector<Fd>& guests, const std::vector<int>& members,
                 const Segment& segment, Deadline deadline) {
  std::vector<std::size_t> firsts;
  std::vector<std::size_t> others;
  std::set<std::int32_t> known{segment.pids[0]};
  for (std::size_t place = 1; place < guests.size(); ++place) {
    const std::int32_t pid = segment.pids[place];
    (pid == 0 || known.insert(pid).second ? firsts : others).push_back(place);
  }
  const auto to = [&](std::size_t place, const Status& status) {
    return status.with_context("handing shared memory to rank " + std::to_string(members[place]));
  };
  const std::size_t at_once = served_at_once(segment);
  for (std::size_t sent = 0, answered = 0; answered < firsts.size(); ++answered) {
    for (; sent < firsts.size() && sent - answered < at_once; ++sent) {
      const Status status = serve(guests[firsts[sent]], segment, deadline);
      if (!status.ok()) return to(firsts[sent], status);
    }
    char done = 0;
    const Status status = recv_all(guests[firsts[answered]].get(), {&done, 1}, deadline);
    if (!status.ok()) return to(firsts[answered], status);
  }
  for (const std::size_t place : others) {
    const Status status = send_frame(guests[place].get(), {}, deadline);
    if (!status.ok()) return to(place, status);
  }
  return {};
}

Result<std::shared_ptr<Segment>> lead(const OpenArgs& args, const std::vector<int>& members,
                                      int wake, const Meeting& meeting, const Uuid& id,
                                      Deadline deadline) {
  HCCL_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment,
                        Segment::create(static_cast<int>(members.size()),
                                        area_bytes(args, members.size()), args.touch_rings));
  segment->wake_fds[0] = Fd(::fcntl(wake, F_DUPFD_CLOEXEC, 0));
  if (!segment->wake_fds[0].valid()) return syscall_failure("F_DUPFD");
  if (args.heap != nullptr) {
    segment->heap_fds[0] = Fd(::fcntl(args.heap->memfd().get(), F_DUPFD_CLOEXEC, 0));
    if (!segment->heap_fds[0].valid()) return syscall_failure("F_DUPFD");
  }
  segment->pids[0] = ::getpid();
  HCCL_ASSIGN_OR_RETURN(const std::vector<Fd> guests,
                        receive_guests(args, members, meeting, id, *segment, deadline));
  args.siblings->share(id, segment);
  HCCL_RETURN_IF_ERROR(serve_all(guests, members, *segment, deadline));
  segment->drop_memfd();
  return segment;
}

// ---- a member's side ----

Result<std::shared_ptr<Segment>> follow(const OpenArgs& args, const std::vector<int>& members,
                                        int wake, const Fd& socket, const Uuid& id,
                                        Deadline deadline) {
  HCCL_RETURN_IF_ERROR(peer_of(socket.get()).status());
  HCCL_RETURN_IF_ERROR(
      authenticate(socket.get(), handshake(Handshake::Side::kClient, args, id), deadline));
  Introduction mine;
  mine.place = static_cast<std::uint32_t>(std::find(members.begin(), members.end(), args.rank) -
                                          members.begin());
  mine.has_heap = args.heap != nullptr ? 1 : 0;
  HCCL_RETURN_IF_ERROR(
      send_all(socket.get(), {reinterpret_cast<const char*>(&mine), sizeof mine}, deadline));
  HCCL_RETURN_IF_ERROR(send_fds(socket.get(), own_fds(args, wake), deadline));

  HCCL_ASSIGN_OR_RETURN(const std::string offer,
                        recv_frame(socket.get(), kOfferCap + 8 * members.size(), deadline));
  if (offer.empty()) {  // another rank of this process has mapped the segment
    auto segment = args.siblings->find(id);
    if (segment != nullptr) return segment;
    return Status(Code::kTcpConnect, "the leader's offer of shared memory is not for this rank");
  }
  ByteReader reader(offer);
  std::vector<std::int32_t> pids(members.size());
  std::vector<std::uint8_t> has_heap(members.size());
  for (std::size_t place = 0; place < members.size(); ++place) {
    pids[place] = reader.get<std::int32_t>();
    has_heap[place] = reader.get<std::uint8_t>();
  }
  if (!reader.finished()) {
    return Status(Code::kTcpConnect, "the leader's offer of shared memory cannot be read");
  }
  const auto heaps =
      static_cast<std::size_t>(std::count(has_heap.begin(), has_heap.end(), std::uint8_t{1}));
  HCCL_ASSIGN_OR_RETURN(std::vector<Fd> fds,
                        recv_fds(socket.get(), 1 + members.size() + heaps, deadline));
  HCCL_ASSIGN_OR_RETURN(std::shared_ptr<Segment> segment,
                        Segment::attach(std::move(fds[0]), static_cast<int>(members.size()),
                                        area_bytes(args, members.size()), args.touch_rings));
  auto next = fds.begin() + 1;
  for (Fd& wake_fd : segment->wake_fds) wake_fd = std::move(*next++);
  for (std::size_t place = 0; place < members.size(); ++place) {
    if (has_heap[place] == 1) segment->heap_fds[place] = std::move(*next++);
  }
  segment->pids = std::move(pids);
  segment->drop_memfd();
  args.siblings->share(id, segment);
  HCCL_RETURN_IF_ERROR(send_all(socket.get(), "+", deadline));
  return segment;
}

Result<std::string> open_meeting(const OpenArgs& args, bool needed, Meeting& meeting, Uuid& id) {
  if (!needed) return std::string();
  HCCL_RETURN_IF_ERROR(random_bytes(id.data(), id.size()));
  HCCL_ASSIGN_OR_RETURN(meeting, Meeting::create(args));
  return Opening{meeting.path(), id}.text();
}

}  // namespace

Result<HandedOver> hand_over(const OpenArgs& args, const std::vector<int>& members,
                             const Result<int>& wake, const Prepare& prepare) {
  const bool alone = members.size() == 1;
  const bool leader = members.front() == args.rank;
  const auto limit = [&] { return args.deadline.sooner(Deadline::after(kHandOverLimit)); };

  // 1. The leader publishes the path of its socket.
  Meeting meeting;
  Uuid id{};
  Result<std::string> mine = open_meeting(args, leader && !alone, meeting, id);
  if (!wake.ok()) mine = wake.status();
  if (args.heap != nullptr && !args.heap->memfd().ours()) {
    mine = Status(Code::kSyscall, "device memory: " + error_text(EBADF));
  }
  Result<std::string> agreed = round(args, members, mine);

  // 2. The members connect. After that the names in the file system are not needed any more.
  Fd socket;
  Status status = agreed.status();
  if (status.ok() && !leader) {
    auto opening = Opening::parse(*agreed);
    status = opening.status();
    if (status.ok()) {
      id = opening->id;
      auto connected = connect_unix(opening->path, limit());
      status = connected.status();
      if (connected.ok()) socket = std::move(connected).value();
    }
  }
  agreed = round(args, members, part_of(status));
  meeting.remove();

  // 3. The leader sends the segment to the members.
  Result<std::shared_ptr<Segment>> segment = std::shared_ptr<Segment>();
  status = agreed.status();
  if (status.ok() && !alone) {
    segment = leader ? lead(args, members, wake.value(), meeting, id, limit())
                     : follow(args, members, wake.value(), socket, id, limit());
    status = segment.status();
  }
  if (!status.ok()) {  // closes the sockets, so that no rank waits for this rank
    meeting.listener.reset();
    socket.reset();
  }
  agreed = round(args, members, status.ok() ? prepare(segment->get()) : part_of(status));
  if (!agreed.ok()) return agreed.status();
  return HandedOver{std::move(*segment), std::move(*agreed)};
}

}  // namespace hccl::transport::shm
