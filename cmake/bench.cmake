# Programs of bench/: built only when bench/ asks for them (bench/peak, bench/train_vs_maxtext).
add_executable(matmul_peak EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/matmul_peak.cc)
target_link_libraries(matmul_peak PRIVATE mt_pjrt)
add_executable(kernels_bench EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/kernels.cc)
target_link_libraries(kernels_bench PRIVATE mt_kernels)
