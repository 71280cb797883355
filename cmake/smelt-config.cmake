# find_package(smelt) makes the target smelt::smelt, the shared library or, where only that is installed,
# the static one; and smelt::static where the static one is installed.
get_filename_component(_smelt_libraries "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
find_path(smelt_INCLUDE_DIR smelt/smelt.h NO_DEFAULT_PATH NO_CACHE
  PATHS "${_smelt_libraries}/../include" "${_smelt_libraries}/../../include")
set(_smelt_static "${_smelt_libraries}/libsmelt.a")
set(_smelt_shared "${_smelt_libraries}/libsmelt.so")
if(NOT EXISTS "${_smelt_shared}")
  set(_smelt_shared "${_smelt_static}")
endif()
if(NOT smelt_INCLUDE_DIR OR NOT EXISTS "${_smelt_shared}")
  set(smelt_FOUND FALSE)
  set(smelt_NOT_FOUND_MESSAGE "no smelt library or headers beside ${CMAKE_CURRENT_LIST_DIR}")
  return()
endif()
foreach(_smelt_name smelt static)
  set(_smelt_file "${_smelt_shared}")
  if(_smelt_name STREQUAL "static")
    set(_smelt_file "${_smelt_static}")
  endif()
  if(EXISTS "${_smelt_file}" AND NOT TARGET smelt::${_smelt_name})
    add_library(smelt::${_smelt_name} UNKNOWN IMPORTED)
    set_target_properties(smelt::${_smelt_name} PROPERTIES
      IMPORTED_LOCATION "${_smelt_file}"
      INTERFACE_INCLUDE_DIRECTORIES "${smelt_INCLUDE_DIR}")
    if(_smelt_file STREQUAL _smelt_static) # it needs zlib, dlopen and threads
      set_property(TARGET smelt::${_smelt_name} PROPERTY INTERFACE_LINK_LIBRARIES z pthread ${CMAKE_DL_LIBS})
    endif()
  endif()
endforeach()
