#include "pjrt/api.h"

#include <string>

namespace mt::pjrt {
namespace {

ErrorKind kind_of(const PJRT_Api& api, const PJRT_Error* error) {
  PJRT_Error_GetCode_Args args{};
  args.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE;
  args.error = error;
  // An error while reading an error's code: freeing it and saying "device" is all there is to do.
  if (PJRT_Error* second = api.PJRT_Error_GetCode(&args)) {
    PJRT_Error_Destroy_Args destroy{};
    destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
    destroy.error = second;
    api.PJRT_Error_Destroy(&destroy);
    return ErrorKind::kDevice;
  }
  if (args.code == PJRT_Error_Code_RESOURCE_EXHAUSTED) return ErrorKind::kLimit;
  if (args.code == PJRT_Error_Code_CANCELLED) return ErrorKind::kCancelled;
  return ErrorKind::kDevice;
}

std::string text_of(const PJRT_Api& api, const PJRT_Error* error) {
  PJRT_Error_Message_Args args{};
  args.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE;
  args.error = error;
  api.PJRT_Error_Message(&args);
  std::string text(args.message == nullptr ? "" : args.message, args.message_size);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

Error take_error(const PJRT_Api& api, PJRT_Error* error, std::string_view what) {
  const ErrorKind kind = kind_of(api, error);
  const std::string text = text_of(api, error);
  PJRT_Error_Destroy_Args destroy{};
  destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  api.PJRT_Error_Destroy(&destroy);
  return fail(kind, "{}: {}", what, text);
}

}  // namespace mt::pjrt
