# Every header compiles alone: one generated source a header, built with the target `tests`, so that
# only changed headers are compiled again.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.h)
set(sources)
foreach(header ${headers})
  file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR}/src ${header})
  string(REPLACE "/" "__" name ${path})
  set(source ${CMAKE_BINARY_DIR}/headers/${name}.cc)
  # Twice: also proves #pragma once. GENERATE writes only when the text changes.
  file(GENERATE OUTPUT ${source} CONTENT "#include \"${path}\"\n#include \"${path}\"\n")
  list(APPEND sources ${source})
endforeach()
add_library(headers_alone OBJECT EXCLUDE_FROM_ALL ${sources})
target_link_libraries(headers_alone PRIVATE mt_options)
target_compile_options(headers_alone PRIVATE -O0)
# What the headers of tests (test_*.h) are given by cmake/tests.cmake.
target_compile_definitions(headers_alone PRIVATE MT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MT_DEPS="${MT_DEPS}")
if(NOT MT_FUZZ)
  add_dependencies(tests headers_alone)
endif()
add_test(NAME headers.every_header_compiles_alone
         COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target headers_alone)
set_tests_properties(headers.every_header_compiles_alone PROPERTIES LABELS headers TIMEOUT 600 RUN_SERIAL ON)
