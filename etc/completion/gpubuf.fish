# fish completion of gpubuf(1). The program itself knows its commands, options and the daemon's names.
function __gpubuf_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] complete -- $words[2..-1] 2>/dev/null)
        if test "$line" = :file
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c gpubuf -f -a '(__gpubuf_complete)'
