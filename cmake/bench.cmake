# Programs of bench/: built only when bench/ asks for them (bench/peak, bench/train_vs_maxtext,
# bench/decode_vs_llama_cpp).
add_executable(matmul_peak EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/matmul_peak.cc)
target_link_libraries(matmul_peak PRIVATE mt_pjrt)
add_executable(kernels_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/kernels.cc)
target_link_libraries(kernels_bench PRIVATE mt_kernels)
add_executable(read_bandwidth EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/read_bandwidth.cc)
target_link_libraries(read_bandwidth PRIVATE mt_options)

# What bench/ reads out of both programs' output, and how it judges.
add_test(NAME bench.decode_side_by_side
         COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/bench/decode_test.py)
set_tests_properties(bench.decode_side_by_side PROPERTIES LABELS checks TIMEOUT 60)
