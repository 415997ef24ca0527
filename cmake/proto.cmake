# hccl_proto(NAME proto): a static library for one .proto of this folder. Other files include the generated code by its
# path from the root. That path is also the name of the .proto in Protobuf's table, which a process has only once.
# Generated code gets no project warnings.
function(hccl_proto name proto)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${proto})
  string(REGEX REPLACE "[.]proto$" ".pb" generated ${PROJECT_BINARY_DIR}/${path})
  add_custom_command(OUTPUT ${generated}.cc ${generated}.h
    COMMAND protobuf::protoc -I ${PROJECT_SOURCE_DIR} --cpp_out=${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/${path}
    DEPENDS ${PROJECT_SOURCE_DIR}/${path} protobuf::protoc)
  add_library(${name} STATIC ${generated}.cc ${generated}.h)
  target_include_directories(${name} SYSTEM PUBLIC ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf)
endfunction()
