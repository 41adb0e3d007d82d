# Tests lie beside the code (src/<room>/*_test.cc) and, where they cross rooms,
# in tests/ (one program a file). gtest comes through one precompiled header for all of them.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)

add_library(mt_gtest INTERFACE)
target_link_libraries(mt_gtest INTERFACE mt_options GTest::gtest GTest::gtest_main)
target_compile_definitions(mt_gtest INTERFACE MT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MT_DEPS="${MT_DEPS}")
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/gtest_header.cc CONTENT "")
add_library(mt_gtest_header OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/gtest_header.cc)
target_link_libraries(mt_gtest_header PRIVATE mt_gtest)
target_precompile_headers(mt_gtest_header PRIVATE <gtest/gtest.h>)

# Labels: unit (no plugin; what `make asan` and `make tsan` run), device (opens the CPU plugin), gpu.
add_custom_target(tests)
add_custom_target(unit_tests)
function(mt_test target label)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  add_dependencies(tests ${target})
  if(label STREQUAL "unit")
    add_dependencies(unit_tests ${target})
  endif()
  target_link_libraries(${target} PRIVATE mt_gtest)
  target_precompile_headers(${target} REUSE_FROM mt_gtest_header)
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${label} TIMEOUT 600)
endfunction()

# A room's tests are one program, and one more of the files that open the plugin: *_device_test.cc.
function(mt_room_test target label room)
  if(ARGN)
    mt_test(${target} ${label} ${ARGN})
    target_link_libraries(${target} PRIVATE mt_${room})
  endif()
endfunction()

foreach(room base sharding ir autodiff pjrt config kernels nnx layers checkpoint models data serve http train plan prove commands)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*_test.cc)
  set(on_device ${sources})
  list(FILTER on_device INCLUDE REGEX "_device_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_device_test\\.cc$")
  mt_room_test(test_${room} unit ${room} ${sources})
  mt_room_test(test_${room}_device device ${room} ${on_device})
endforeach()

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*_test.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  mt_test(${name} device ${source})
  target_link_libraries(${name} PRIVATE mt_commands)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE MT_PROGRAM="$<TARGET_FILE:maxtext>")
  add_dependencies(${name} maxtext)
endforeach()

# tests/gpu/: label gpu, which `make test` leaves out in words and `make test-gpu` runs.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/*_test.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  mt_test(${name} gpu ${source})
  target_link_libraries(${name} PRIVATE mt_commands)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  add_dependencies(${name} maxtext)
endforeach()

# OpenAI's own client against the program; scripts/setup.sh fetches it.
add_test(NAME openai_client
         COMMAND ${CMAKE_SOURCE_DIR}/.deps/openai/python -B ${CMAKE_SOURCE_DIR}/tests/openai_client_test.py
                 $<TARGET_FILE:maxtext>)
set_tests_properties(openai_client PROPERTIES LABELS device TIMEOUT 600)
