"""Words from which prompts are made."""


def _words(text: str) -> list[str]:
    return text.split()


WORDS = _words("""
apple river stone garden window paper silver table mountain forest ocean bridge candle market winter
summer animal bottle camera dragon engine feather guitar hammer island jacket kitchen ladder mirror
needle orange pencil rabbit saddle temple umbrella valley wagon yellow zebra anchor basket copper
desert eagle falcon ginger harbor ivory jungle kernel lemon marble nickel olive pepper quartz ribbon
sailor timber velvet walnut cotton planet rocket signal thunder tunnel violin whistle cloud dream
field glass horse house light music night plant queen smoke story sugar tiger train water wheat
wheel world bread chair clock coast crown dance earth flame grass heart knife lake leaf moon nest
path pearl rain road root rope salt sand seed ship silk snow song star storm sun tower tree wall
wind wolf wood banana cherry grape mango peach plum tomato potato carrot onion spinach butter cheese
coffee honey pasta rice soup doctor farmer lawyer painter pilot singer teacher writer baker driver
happy quiet bright gentle brave clever simple strong narrow broad early late fresh clean empty heavy
small large round sharp smooth warm cold green blue red
""")
NAMES = _words("""
Ann Ben Cara Dan Eva Finn Gina Hugo Iris Jack Kira Leo Mia Nils Olga Paul Quinn Rosa Sam Tara Uma
Vera Will Xena Yara Zoe Amir Bella Carl Dora
""")
TOOL_VERBS = _words("""
get set read write find send open close create delete update list fetch start stop check move copy
""")
TOOL_NOUNS = _words("""
file user record weather order message report ticket event note image job page account task branch
""")
PARAMETERS = _words("""
path name query city id count limit title text url date user_id key value mode owner target email
language offset
""")
CODE_KINDS = [
    "access code",
    "pass code",
    "serial number",
    "locker code",
    "gate code",
    "order number",
    "room code",
    "badge number",
]
NUMBER_WORDS = _words("""
zero one two three four five six seven eight nine ten eleven twelve
""")
RELATIONS = ["is near", "looks like", "was under", "moved past", "belongs to"]
