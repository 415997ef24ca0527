// Returns a request's handle to the caller of a C function.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "hccl/api/state.h"
#include "hccl/hccl_framework.h"

namespace hccl::api {

/// Reserves the handle before the work begins, so that returning the handle cannot fail once the
/// work uses the caller's memory.
class RequestOut {
 public:
  /// If `request` is null, the caller wants no handle.
  explicit RequestOut(HcclRequest* request) : request_(request) {
    if (request != nullptr) place_.emplace(State::get().requests());
  }
  void set(std::shared_ptr<Request> begun) {
    if (place_) *request_ = static_cast<HcclRequest>(place_->add(std::move(begun)));
  }

 private:
  HcclRequest* request_;
  std::optional<Handles<Request>::Place> place_;
};

}  // namespace hccl::api
