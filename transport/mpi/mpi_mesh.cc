#include "transport/mpi/mpi_mesh.h"

#include <algorithm>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "transport/mpi/block.h"

namespace hccl::transport::mpi {
namespace {

// After an abort, a half-received message has this long to end.
constexpr std::chrono::seconds kLetGo{1};
// Closing a mesh takes at most this long to notify the peers.
constexpr std::chrono::milliseconds kGoodbyeLimit{300};

Status failure(bool is_send, int peer, int error) {
  const std::string what = is_send ? "MPI cannot send to rank " : "MPI cannot receive from rank ";
  return mpi_error(Code::kRemote, what + std::to_string(peer), error, peer);
}

}  // namespace

MpiMesh::~MpiMesh() {
  if (aborted_.raised()) {
    group_->keep_for_ever();
  } else {
    say_goodbye();
  }
}

// ---- posting ----

void MpiMesh::send(Request& request, int peer, std::uint32_t lane,
                   std::span<const std::byte> bytes) {
  if (refused(request, size_, peer, lane, aborted_)) return;
  if (peer == rank_) return self_.send(request, peer, lane, bytes);
  request.begin(peer, lane, const_cast<std::byte*>(bytes.data()), bytes.size());
  PeerState& to = peers_[static_cast<std::size_t>(peer)];
  if (!to.gone.ok()) return request.finish(to.gone);
  to.contacted = true;
  const Process::Stay stay(process_);
  if (!stay) return request.finish(Status(Code::kUnavail, "MPI is finalised"));
  const Block block(bytes.size());
  MPI_Request in_mpi = MPI_REQUEST_NULL;
  const int result =
      MPI_Isend(bytes.data(), block.count(), block.type(), rank_map_.process_of(peer),
                rank_map_.tag(rank_, peer, lane), group_->comm(), &in_mpi);
  if (result != MPI_SUCCESS) return request.finish(failure(true, peer, result));
  active_.push_back({&request, true, Status(), nullptr});
  in_mpi_.push_back(in_mpi);
}

void MpiMesh::recv(Request& request, int peer, std::uint32_t lane, std::span<std::byte> bytes) {
  if (refused(request, size_, peer, lane, aborted_)) return;
  if (peer == rank_) return self_.recv(request, peer, lane, bytes);
  request.begin(peer, lane, bytes.data(), bytes.size());
  peers_[static_cast<std::size_t>(peer)].contacted = true;
  auto& channel = channels_[std::uint64_t{static_cast<std::uint32_t>(peer)} << 32 | lane];
  if (channel == nullptr) {
    channel = std::make_unique<Channel>();
    channel->peer = peer;
    channel->lane = lane;
  }
  channel->waiting.push(request);
  if (!channel->listed) {
    channel->listed = true;
    listening_.push_back(channel.get());
  }
}

// ---- progress ----

bool MpiMesh::progress() {
  if (aborted_.raised()) return wind_up();
  if (active_.empty() && listening_.empty()) return false;
  const Process::Stay stay(process_);
  if (!stay) {
    aborted_.raise(Status(Code::kUnavail, "MPI was finalised while a communicator was in use"));
    in_mpi_.clear();  // MPI has ended these requests
    fail_all(aborted_.reason());
    return true;
  }
  bool moved = match_all();
  moved |= test_active();
  if (next_hearing_.expired()) {
    next_hearing_ = Deadline::after(kHearing);
    moved |= hear_goodbyes();
  }
  if (moved) sleeper_.moved();
  return moved;
}

bool MpiMesh::match_all() {
  bool moved = false;
  for (std::size_t i = 0; i < listening_.size();) {
    Channel& channel = *listening_[i];
    while (!channel.waiting.empty() && match(channel)) moved = true;
    // Messages that came before the peer left have just been matched; no more will follow.
    const Status& gone = peers_[static_cast<std::size_t>(channel.peer)].gone;
    while (!gone.ok() && !channel.waiting.empty()) {
      channel.waiting.pop()->finish(gone);
      moved = true;
    }
    if (channel.waiting.empty()) {
      channel.listed = false;
      listening_[i] = listening_.back();
      listening_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

/// Gives the oldest receive of a channel its message, if the message has come.
bool MpiMesh::match(Channel& channel) {
  int there = 0;
  MPI_Status status;
  const int process = rank_map_.process_of(channel.peer);
  const int tag = rank_map_.tag(channel.peer, rank_, channel.lane);
  int result = MPI_Iprobe(process, tag, group_->comm(), &there, &status);
  if (result == MPI_SUCCESS && there == 0) return false;
  Request& request = *channel.waiting.pop();
  MPI_Count count = 0;
  if (result == MPI_SUCCESS) result = MPI_Get_elements_x(&status, MPI_BYTE, &count);
  const auto sent = static_cast<std::size_t>(count);
  Active active{&request, false, Status(), nullptr};
  std::byte* bytes = request.data_;
  if (result == MPI_SUCCESS && sent != request.size_) {
    active.verdict = size_mismatch(channel.peer, channel.lane, request.size_, sent);
    // MPI must take the message from its sender, but not into the caller's bytes: Open MPI 4.1
    // writes beyond the end of a buffer that is too small.
    active.scratch.reset(new (std::nothrow) std::byte[std::max<std::size_t>(sent, 1)]);
    bytes = active.scratch.get();
    if (bytes == nullptr) {
      request.finish(std::move(active.verdict));
      return true;
    }
  }
  MPI_Request in_mpi = MPI_REQUEST_NULL;
  if (result == MPI_SUCCESS) {
    const Block block(sent);
    result = MPI_Irecv(bytes, block.count(), block.type(), process, tag, group_->comm(), &in_mpi);
  }
  if (result != MPI_SUCCESS) {
    request.finish(failure(false, channel.peer, result));
    return true;
  }
  active_.push_back(std::move(active));
  in_mpi_.push_back(in_mpi);
  return true;
}

bool MpiMesh::test_active() {
  if (in_mpi_.empty()) return false;
  places_.resize(in_mpi_.size());
  statuses_.resize(in_mpi_.size());
  int done = 0;
  const int result = MPI_Testsome(static_cast<int>(in_mpi_.size()), in_mpi_.data(), &done,
                                  places_.data(), statuses_.data());
  if (result != MPI_SUCCESS && result != MPI_ERR_IN_STATUS) {
    aborted_.raise(mpi_error(Code::kNetwork, "MPI cannot complete messages", result));
    return true;  // the next progress() calls wind_up()
  }
  if (done == MPI_UNDEFINED || done == 0) return false;
  // Highest index first, because finish_active() moves the last request to the index of a finished
  // one.
  std::vector<std::pair<int, int>> finished;
  for (int i = 0; i < done; ++i) {
    const auto at = static_cast<std::size_t>(i);
    finished.emplace_back(places_[at],
                          result == MPI_ERR_IN_STATUS ? statuses_[at].MPI_ERROR : MPI_SUCCESS);
  }
  std::sort(finished.begin(), finished.end(), std::greater<>());
  for (const auto& [place, error] : finished) finish_active(static_cast<std::size_t>(place), error);
  return true;
}

void MpiMesh::finish_active(std::size_t place, int error) {
  Active ended = std::move(active_[place]);
  active_[place] = std::move(active_.back());
  active_.pop_back();
  in_mpi_[place] = in_mpi_.back();
  in_mpi_.pop_back();
  Request& request = *ended.request;
  if (!ended.verdict.ok()) return request.finish(std::move(ended.verdict));
  if (error != MPI_SUCCESS) return request.finish(failure(ended.is_send, request.peer_, error));
  request.moved_ = request.size_;
  request.finish();
}

// ---- the end ----

void MpiMesh::say_goodbye() {
  const Process::Stay stay(process_);
  if (!stay) return;
  std::vector<MPI_Request> goodbyes;
  std::vector<Farewell> outstanding;
  for (int peer = 0; peer < size_; ++peer) {
    const PeerState& to = peers_[static_cast<std::size_t>(peer)];
    if (peer == rank_ || !to.contacted) continue;
    // A peer that has left gets the message, too: it frees its communicator after this message.
    MPI_Isend(nullptr, 0, MPI_BYTE, rank_map_.process_of(peer),
              rank_map_.tag(rank_, peer, RankMap::kGoodbye), group_->comm(),
              &goodbyes.emplace_back());
    if (to.gone.ok()) {
      outstanding.push_back(
          {rank_map_.process_of(peer), rank_map_.tag(peer, rank_, RankMap::kGoodbye)});
    }
  }
  group_->leave(outstanding);
  const auto said = [&] {
    int all = 0;
    MPI_Testall(static_cast<int>(goodbyes.size()), goodbyes.data(), &all, MPI_STATUSES_IGNORE);
    return all != 0;
  };
  if (Waiter{.timeout = kGoodbyeLimit}.until(said, sleeper_) == Waited::kReady) return;
  // A peer that no longer listens must not delay this rank.
  group_->keep_for_ever();
  for (MPI_Request& request : goodbyes) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

/// Checks whether peers of unfinished requests have left. Returns whether at least one has left.
bool MpiMesh::hear_goodbyes() {
  bool heard = false;
  for (const Channel* channel : listening_) heard |= hear_goodbye(channel->peer);
  for (const Active& active : active_) heard |= hear_goodbye(active.request->peer_);
  if (!heard) return false;
  match_all();
  for (std::size_t i = active_.size(); i-- > 0;) {
    const Status& gone = peers_[static_cast<std::size_t>(active_[i].request->peer_)].gone;
    if (gone.ok() || !active_[i].is_send) continue;
    MPI_Request_free(&in_mpi_[i]);
    active_[i].verdict = gone;
    finish_active(i, MPI_SUCCESS);
  }
  return true;
}

bool MpiMesh::hear_goodbye(int peer) {
  PeerState& from = peers_[static_cast<std::size_t>(peer)];
  if (!from.gone.ok()) return false;
  const Farewell goodbye{rank_map_.process_of(peer), rank_map_.tag(peer, rank_, RankMap::kGoodbye)};
  if (!receive(group_->comm(), goodbye)) return false;
  from.gone =
      Status(Code::kRemote,
             "rank " + std::to_string(peer) + " has closed its side of the communicator", peer);
  return true;
}

/// After an abort, sends fail at once, and so do receives that MPI does not have yet. MPI still
/// writes a half-received message to its buffer, so that receive ends when MPI has finished, or
/// after kLetGo if the sender has stopped.
bool MpiMesh::wind_up() {
  if (winding_up_ && active_.empty()) return false;
  const Status why = aborted_.reason();
  const Process::Stay stay(process_);
  if (!stay) {
    in_mpi_.clear();
    fail_all(why);
    return true;
  }
  if (!winding_up_) {
    winding_up_ = true;
    wound_up_ = Deadline::after(kLetGo);
    test_active();  // first, so that finished requests keep their results
    // A mesh of messages with tags always ends by an abort. If its communicator has failed, the
    // mesh of the communicator's collectives notes that.
    if (!ends_by_abort_ || !active_.empty()) process_.note_failure();
    for (std::size_t i = active_.size(); i-- > 0;) {
      if (!active_[i].is_send) continue;
      MPI_Request_free(&in_mpi_[i]);
      active_[i].verdict = why;
      finish_active(i, MPI_SUCCESS);
    }
    fail_waiting(why);
    return true;
  }
  const bool moved = test_active();
  if (!active_.empty() && wound_up_.expired()) {
    for (MPI_Request& request : in_mpi_) MPI_Request_free(&request);
    fail_all(why);
    return true;
  }
  return moved;
}

void MpiMesh::fail_all(const Status& why) {
  winding_up_ = true;
  in_mpi_.clear();
  for (Active& active : std::exchange(active_, {})) active.request->finish(why);
  fail_waiting(why);
}

/// Fails the requests that were not posted in MPI.
void MpiMesh::fail_waiting(const Status& why) {
  for (Channel* channel : std::exchange(listening_, {})) {
    channel->listed = false;
    while (!channel->waiting.empty()) channel->waiting.pop()->finish(why);
  }
  self_.fail(why);
}

void MpiMesh::abort(Status status) {
  if (aborted_.raise(std::move(status))) sleeper_.ring();
}

}  // namespace hccl::transport::mpi
