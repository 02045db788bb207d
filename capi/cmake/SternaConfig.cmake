# The targets Sterna::sterna (shared) and Sterna::sterna_static of an installed Sterna, wherever its prefix was moved.
get_filename_component(_sterna_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

find_path(Sterna_INCLUDE_DIR sterna.h PATHS "${_sterna_prefix}/include" NO_DEFAULT_PATH)
foreach(_sterna_kind shared static)
    if(_sterna_kind STREQUAL shared)
        set(_sterna_target Sterna::sterna)
        set(_sterna_file "${CMAKE_SHARED_LIBRARY_PREFIX}sterna${CMAKE_SHARED_LIBRARY_SUFFIX}")
    else()
        set(_sterna_target Sterna::sterna_static)
        set(_sterna_file "${CMAKE_STATIC_LIBRARY_PREFIX}sterna${CMAKE_STATIC_LIBRARY_SUFFIX}")
    endif()
    find_file(
        Sterna_${_sterna_kind}_LIBRARY "${_sterna_file}"
        PATHS "${_sterna_prefix}"
        PATH_SUFFIXES lib lib64 "lib/${CMAKE_LIBRARY_ARCHITECTURE}"
        NO_DEFAULT_PATH)
    mark_as_advanced(Sterna_${_sterna_kind}_LIBRARY)
    if(Sterna_INCLUDE_DIR AND Sterna_${_sterna_kind}_LIBRARY AND NOT TARGET ${_sterna_target})
        string(TOUPPER ${_sterna_kind} _sterna_type)
        add_library(${_sterna_target} ${_sterna_type} IMPORTED)
        set_target_properties(
            ${_sterna_target} PROPERTIES
            IMPORTED_LOCATION "${Sterna_${_sterna_kind}_LIBRARY}"
            INTERFACE_INCLUDE_DIRECTORIES "${Sterna_INCLUDE_DIR}")
    endif()
endforeach()
mark_as_advanced(Sterna_INCLUDE_DIR)

# What the static library leaves to the system.
if(TARGET Sterna::sterna_static)
    include(CMakeFindDependencyMacro)
    find_dependency(Threads)
    set_target_properties(
        Sterna::sterna_static PROPERTIES
        INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};$<$<PLATFORM_ID:Linux>:m>")
endif()

# One kind of library is enough for `find_package(Sterna)`; a component asks for one of them.
set(Sterna_sterna_FOUND 0)
set(Sterna_sterna_static_FOUND 0)
foreach(_sterna_component sterna sterna_static)
    if(TARGET Sterna::${_sterna_component})
        set(Sterna_${_sterna_component}_FOUND 1)
    endif()
endforeach()
if(NOT Sterna_sterna_FOUND AND NOT Sterna_sterna_static_FOUND)
    set(Sterna_FOUND 0)
    set(Sterna_NOT_FOUND_MESSAGE "no header or no library of Sterna under ${_sterna_prefix}")
endif()
foreach(_sterna_component ${Sterna_FIND_COMPONENTS})
    if(Sterna_FIND_REQUIRED_${_sterna_component} AND NOT Sterna_${_sterna_component}_FOUND)
        set(Sterna_FOUND 0)
        set(Sterna_NOT_FOUND_MESSAGE "Sterna::${_sterna_component} is not under ${_sterna_prefix}")
    endif()
endforeach()

unset(_sterna_component)
unset(_sterna_file)
unset(_sterna_kind)
unset(_sterna_prefix)
unset(_sterna_target)
unset(_sterna_type)
