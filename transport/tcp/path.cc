#include "transport/tcp/path.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace hccl::transport::tcp {
namespace {

/// The offset of tcpi_snd_wnd in the kernel's answer. Older headers and older kernels lack the
/// field.
constexpr std::size_t kWindowAt = 228;
constexpr int kProbes = 3;
/// One or two lost packets do not make a broken path.
constexpr int kTries = 3;
/// The kernel's longest time for its probes.
constexpr std::chrono::seconds kLongest{32767};

struct State {
  tcp_info info{};
  bool window_known = false;
  std::uint32_t window = 0;  ///< bytes that the peer has room for
};

bool read_state(int fd, State& state) {
  std::array<std::byte, kWindowAt + sizeof state.window> answer{};
  socklen_t length = answer.size();
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, answer.data(), &length) != 0) return false;
  std::memcpy(&state.info, answer.data(), std::min(sizeof state.info, answer.size()));
  state.window_known = length == answer.size();
  std::memcpy(&state.window, answer.data() + kWindowAt, sizeof state.window);
  return true;
}

void set(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

}  // namespace

Path::Path(int fd, std::chrono::nanoseconds patience) : patience_(patience) {
  using std::chrono::seconds;
  const auto total =
      static_cast<int>(std::min(kLongest, std::chrono::duration_cast<seconds>(patience)).count());
  const int interval = std::max(1, total / (2 * kProbes));
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, total - kProbes * interval));
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::string Path::fault(int fd) {
  using std::chrono::milliseconds;
  State state;
  if (!read_state(fd, state)) return {};
  const tcp_info& info = state.info;
  const auto now = Deadline::Clock::now();
  const bool late = now - std::exchange(looked_, now) > patience_ / 2;
  const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
  if (!waits || late ||
      info.tcpi_bytes_acked != std::exchange(acknowledged_, info.tcpi_bytes_acked)) {
    since_ = now;
    return {};
  }
  const auto waited = now - since_;
  if (waited < patience_ || info.tcpi_retransmits + info.tcpi_probes < kTries) return {};
  // An answer to the last packet shows that the path works, even if packets are rare now.
  const bool silent = milliseconds(info.tcpi_last_ack_recv) >= patience_ &&
                      info.tcpi_last_ack_recv > info.tcpi_last_data_sent;
  // If a host answers but accepts nothing, the host has no room, or long packets do not reach it.
  const bool has_room = state.window_known && state.window > 0;
  if (!silent && (!has_room || waited < 3 * patience_)) return {};
  return "packets of up to " + std::to_string(info.tcpi_snd_mss) + " bytes were sent again for " +
         std::to_string(std::chrono::duration_cast<std::chrono::seconds>(waited).count()) +
         " s, and the other host " +
         (silent ? "answers nothing"
                 : "answers, but does not get them: compare the MTU on the way");
}

}  // namespace hccl::transport::tcp
