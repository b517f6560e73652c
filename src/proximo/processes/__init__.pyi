from proximo.processes.joining import join as join
from proximo.processes.peers import Peers as Peers
from proximo.processes.peers import current as current

LAUNCHER: str
