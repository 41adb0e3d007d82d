# Tests lie beside the code (src/<room>/*_test.cc, one program a room) and, where they cross rooms,
# in tests/ (one program a file). gtest comes through a precompiled header.
enable_testing()
find_package(GTest REQUIRED)
include(GoogleTest)

add_library(mt_gtest INTERFACE)
target_link_libraries(mt_gtest INTERFACE mt_options GTest::gtest GTest::gtest_main)
target_precompile_headers(mt_gtest INTERFACE <gtest/gtest.h>)
target_compile_definitions(mt_gtest INTERFACE MT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MT_DEPS="${MT_DEPS}")

add_custom_target(tests)
function(mt_test target label)
  add_executable(${target} EXCLUDE_FROM_ALL ${ARGN})
  add_dependencies(tests ${target})
  target_link_libraries(${target} PRIVATE mt_gtest)
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS ${label} TIMEOUT 600)
endfunction()

foreach(room base sharding ir autodiff pjrt config kernels nnx layers checkpoint models data train commands)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${room}/*_test.cc)
  if(sources)
    mt_test(test_${room} unit ${sources})
    target_link_libraries(test_${room} PRIVATE mt_${room})
  endif()
endforeach()

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*_test.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  mt_test(${name} device ${source})
  target_link_libraries(${name} PRIVATE mt_commands)
  add_dependencies(${name} maxtext)
endforeach()

# tests/gpu/: label gpu, which `make test` leaves out in words and `make test-gpu` runs.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/gpu/*_test.cc)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  mt_test(${name} gpu ${source})
  target_link_libraries(${name} PRIVATE mt_commands)
  add_dependencies(${name} maxtext)
endforeach()
