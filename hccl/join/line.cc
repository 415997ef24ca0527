#include "hccl/join/line.h"

#include <poll.h>

#include <cstring>
#include <utility>

#include "hccl/base/bytes.h"

namespace hccl::join {

Line::Line(Fd fd, Side side, std::shared_ptr<const TlsContext> context, const RootInfo& info)
    : fd_(std::move(fd)),
      side_(side),
      context_(std::move(context)),
      secret_(info.secret),
      id_(info.id) {}

Status Line::prove() {
  if (!tls_) {
    HCCL_ASSIGN_OR_RETURN(
        tls_, TlsStream::create(context_, side_, fd_.get(), tls_key(secret_, id_, "control")));
  }
  return tls_->handshake();
}

short Line::wants() const { return tls_ ? tls_->wants() : POLLIN; }
bool Line::proved() const { return tls_ && tls_->finished(); }
bool Line::named() const { return tls_ && tls_->named(); }

void Line::put(std::string_view frame) { out_.push_back(ByteWriter().put_text(frame).take()); }

Status Line::flush() {
  for (; !out_.empty(); out_.pop_front(), sent_ = 0) {
    const std::string_view frame = out_.front();
    HCCL_ASSIGN_OR_RETURN(const std::size_t sent, tls_->write(frame.substr(sent_)));
    sent_ += sent;
    if (sent_ < frame.size()) break;
  }
  return {};
}

Result<std::size_t> Line::fill() {
  char bytes[16384];
  HCCL_ASSIGN_OR_RETURN(const std::size_t got, tls_->read(bytes));
  in_.append(bytes, got);
  return got;
}

Result<std::optional<std::string>> Line::next(std::size_t cap) {
  std::uint32_t length = 0;
  if (in_.size() < sizeof length) return std::optional<std::string>();
  std::memcpy(&length, in_.data(), sizeof length);
  if (length == 0 || length > cap) {
    return Status(Code::kTcpTransfer, "a frame of " + std::to_string(length) + " bytes, where " +
                                          std::to_string(cap) + " are allowed");
  }
  if (in_.size() < sizeof length + length) return std::optional<std::string>();
  std::string frame = in_.substr(sizeof length, length);
  in_.erase(0, sizeof length + length);
  return std::optional<std::string>(std::move(frame));
}

}  // namespace hccl::join
